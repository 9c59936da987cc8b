"""Dispatchers: who handles what, what happens when that fails, and how they stop."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

import penstock
from penstock import (
    AsyncDispatcher,
    Call,
    ClaimedMessage,
    Dispatcher,
    FailurePolicy,
    Interceptor,
    NewMessage,
    Store,
    UndecodablePayload,
)
from penstock.errors import JoinNotFound, PermanentFailure, StaleLease, ValidationError
from penstock.outbox.in_progress import ClaimCursor, DispatchOptions
from tests.both_ways import Way, as_is, way_of
from tests.conftest import Server
from tests.log_output import logged
from tests.outbox.dispatching import dispatching, prepare
from tests.outbox.outboxes import (
    become_due,
    claim_one,
    end_leases,
    new_dispatch_loop,
    new_dispatcher,
    sql,
)
from tests.racing import at_once, wait_until, wait_until_gone

ONE_TRY = FailurePolicy.retry(attempts=1)
SOON = FailurePolicy.retry(attempts=3, delay=0.0, longest_delay=0.0)
TIMEOUT = 30
PATIENCE = timedelta(seconds=15)


@contextmanager
def running(dispatcher: Dispatcher) -> Iterator[threading.Thread]:
    """Run a dispatcher on a thread for the length of the block."""
    thread = threading.Thread(target=dispatcher.run)
    thread.start()
    try:
        yield thread
    finally:
        dispatcher.stop()
        thread.join()


def handled_until(
    dispatcher: Dispatcher,
    store: Store,
    last: str,
    after_five: Callable[[], object] = lambda: None,
) -> list[object]:
    """Handle one message after the other, each enqueued by the one before, until `last` comes.

    Returns what was handled. The messages end after a thousand, whether it has come or not.
    """
    handled: list[object] = []
    ended = threading.Event()

    @dispatcher.handler("mail")
    def handle(message: ClaimedMessage) -> None:
        handled.append(message.payload)
        if len(handled) == 5:
            after_five()
        if message.payload == last or len(handled) == 1000:
            ended.set()
        elif not ended.is_set():
            store.outbox.enqueue("mail", "more")

    store.outbox.enqueue("mail", "more")
    with running(dispatcher):
        assert ended.wait(TIMEOUT)
    return handled


@contextmanager
def away(store: Store, server: Server) -> Iterator[None]:
    """Keep everybody off the store's database for the length of the block."""
    name = conninfo_to_dict(store.settings.conninfo())["dbname"]
    server.administer("alter database {} with allow_connections false", str(name))
    try:
        with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
            connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", [name]
            )
        yield
    finally:
        server.administer("alter database {} with allow_connections true", str(name))


def wait_for(store: Store, condition: str, *arguments: object) -> None:
    """Wait until a condition of the outbox holds, or for as long as it should ever take."""
    wait_until(
        store.settings.conninfo(),
        f"select ({condition}) or clock_timestamp() > %s from penstock.outbox",
        (*arguments, datetime.now(UTC) + PATIENCE),
    )


def states(store: Store) -> list[str]:
    return [one.state for one in store.outbox.list()]


class TestHandlers:
    def test_a_handler_gets_the_messages_of_its_topic(self, store: Store) -> None:
        dispatcher, got = new_dispatcher(store), list[Any]()
        dispatcher.handler("mail")(lambda message: got.append(message.payload))
        dispatcher.handler("Mail")(lambda message: got.append("another topic"))
        store.outbox.enqueue_many([NewMessage("mail", n) for n in range(3)])

        handled = dispatcher.run_until_idle()

        assert (handled, sorted(got)) == (3, [0, 1, 2])
        assert states(store) == ["done"] * 3

    def test_async_handlers_run_side_by_side_on_one_loop(self, store: Store) -> None:
        dispatcher, loops = new_dispatcher(store, concurrency=3), set[Any]()
        all_here = asyncio.Barrier(3)

        @dispatcher.handler("mail")
        async def handle(message: ClaimedMessage) -> None:
            loops.add(asyncio.get_running_loop())
            await asyncio.wait_for(all_here.wait(), TIMEOUT)

        store.outbox.enqueue_many([NewMessage("mail")] * 3)
        dispatcher.run_until_idle()

        assert len(loops) == 1
        assert states(store) == ["done"] * 3

    def test_so_many_handlers_run_at_once_and_no_more(self, store: Store) -> None:
        dispatcher = new_dispatcher(store, concurrency=4)
        all_here, at_work, most = threading.Barrier(4), 0, 0
        counting = threading.Lock()

        @dispatcher.handler("mail")
        def handle(message: ClaimedMessage) -> None:
            nonlocal at_work, most
            with counting:
                at_work += 1
                most = max(most, at_work)
            all_here.wait(TIMEOUT)
            with counting:
                at_work -= 1

        store.outbox.enqueue_many([NewMessage("mail")] * 12)
        dispatcher.run_until_idle()

        assert most == 4
        assert states(store) == ["done"] * 12

    def test_a_topic_has_one_handler(self, store: Store) -> None:
        dispatcher = new_dispatcher(store)
        dispatcher.handler("mail")(print)

        for topic in ("mail", "join.wait", ""):
            with pytest.raises(ValidationError):
                dispatcher.handler(topic)(print)

    def test_what_follows_from_a_handler_is_handled_too(self, store: Store) -> None:
        dispatcher, got = new_dispatcher(store), list[Any]()

        @dispatcher.handler("count down")
        def handle(message: ClaimedMessage) -> None:
            got.append(message.payload)
            if message.payload:
                store.outbox.enqueue("count down", message.payload - 1)  # type: ignore[operator]

        store.outbox.enqueue("count down", 3)
        dispatcher.run_until_idle()

        assert got == [3, 2, 1, 0]

    @pytest.mark.parametrize(
        "wrong",
        [
            {"concurrency": 0},
            {"on_failure": "retry"},
            {"batch_size": 0},
            {"warn_after": 0},
            {"lease": 0},
            {"polling_interval_ms": 0},
            {"owner": "\0"},
        ],
    )
    def test_bad_terms_are_refused(self, store: Store, wrong: dict[str, Any]) -> None:
        with pytest.raises(ValidationError):
            new_dispatcher(store, **wrong)


class TestFailures:
    @pytest.mark.parametrize("delay", [float("nan"), float("inf"), 1e9, "1", -1])
    def test_a_pause_that_never_ends_is_no_policy(self, delay: Any) -> None:
        with pytest.raises(ValidationError):
            FailurePolicy.retry(delay=delay, longest_delay=delay)

    @pytest.mark.parametrize(
        "use",
        [
            lambda store: new_dispatcher(None),
            lambda store: new_dispatcher(store).handler(print),  # type: ignore[arg-type]
            lambda store: new_dispatcher(store).handler("mail")(5),  # type: ignore[type-var]
            lambda store: new_dispatcher(store).handler("mail", on_failure="x"),  # type: ignore[arg-type]
            lambda store: new_dispatcher(store).publish("mail", 5),  # type: ignore[arg-type]
            lambda store: new_dispatcher(store).publish("mail", "counter-1", 5),  # type: ignore[arg-type]
        ],
    )
    def test_what_could_only_fail_later_is_refused_at_once(
        self, store: Store, use: Callable[[Any], object]
    ) -> None:
        with pytest.raises(ValidationError):
            use(store)

    async def test_a_store_of_the_other_form_is_refused(self, database_url: str) -> None:
        async with await penstock.connect_async(database_url) as async_store:
            with pytest.raises(ValidationError, match="a Store, or a provider of Stores"):
                Dispatcher(async_store)  # type: ignore[arg-type]
        with (
            penstock.connect(database_url) as blocking_store,
            pytest.raises(ValidationError, match="an AsyncStore, or a provider of AsyncStores"),
        ):
            AsyncDispatcher(blocking_store)  # type: ignore[arg-type]

    def test_a_failing_handler_is_tried_again_and_the_last_error_kept(self, store: Store) -> None:
        dispatcher, attempts = new_dispatcher(store, on_failure=SOON), list[int]()

        @dispatcher.handler("mail")
        def handle(message: ClaimedMessage) -> None:
            attempts.append(message.attempts)
            raise RuntimeError(f"no {message.attempts}")

        store.outbox.enqueue("mail")
        dispatcher.run_until_idle()

        [message] = store.outbox.list()
        assert attempts == [1, 2, 3]
        assert (message.state, message.last_error) == ("failed", "RuntimeError: no 3")

    def test_the_pauses_grow_to_a_limit_and_differ(self) -> None:
        policy = FailurePolicy.retry(attempts=5000, delay=1, longest_delay=60)

        pauses = [[policy.pause(attempt) for attempt in (1, 2, 3, 10, 5000)] for _ in range(20)]

        for one in pauses:
            assert all(
                low <= pause <= high for pause, (low, high) in zip(one, _BOUNDS, strict=True)
            )
        assert len({one[0] for one in pauses}) > 1

    def test_a_message_waits_for_its_pause(self, store: Store) -> None:
        later = FailurePolicy.retry(attempts=2, delay=3600, longest_delay=3600)
        dispatcher = new_dispatcher(store, on_failure=later)
        dispatcher.handler("mail")(_raise(RuntimeError("no")))
        store.outbox.enqueue("mail")

        first = dispatcher.run_until_idle()
        become_due(store)
        second = dispatcher.run_until_idle()

        assert (first, second) == (1, 1)
        assert states(store) == ["failed"]

    def test_a_topic_may_have_a_policy_of_its_own(self, store: Store) -> None:
        dispatcher = new_dispatcher(store, on_failure=SOON)
        dispatcher.handler("patient")(_raise(RuntimeError("no")))
        dispatcher.handler("hasty", on_failure=ONE_TRY)(_raise(RuntimeError("no")))
        store.outbox.enqueue_many([NewMessage("patient"), NewMessage("hasty")])

        dispatcher.run_until_idle()

        assert [one.attempts for one in store.outbox.list(state="failed")] == [3, 1]

    def test_a_permanent_failure_is_not_tried_again(self, store: Store) -> None:
        dispatcher = new_dispatcher(store)
        dispatcher.handler("mail")(_raise(PermanentFailure("no such address")))
        store.outbox.enqueue("mail")

        dispatcher.run_until_idle()

        [message] = store.outbox.list()
        assert (message.state, message.attempts) == ("failed", 1)
        assert message.last_error == "PermanentFailure: no such address"

    @pytest.mark.parametrize(
        "error",
        [
            SystemExit(3),
            KeyboardInterrupt(),
            GeneratorExit(),
            asyncio.CancelledError(),
            ValueError("k"),
        ],
    )
    def test_whatever_an_async_handler_raises_the_others_go_on(
        self, store: Store, error: BaseException
    ) -> None:
        check_that_others_go_on(store, error, lambda failing: failing)

    @pytest.mark.parametrize("error", [GeneratorExit(), asyncio.CancelledError(), ValueError("k")])
    def test_whatever_a_task_of_a_handler_raises_the_others_go_on(
        self, store: Store, error: BaseException
    ) -> None:
        check_that_others_go_on(store, error, asyncio.ensure_future)

    @pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
    def test_a_task_of_a_handler_does_not_end_the_loop_of_a_blocking_dispatcher(
        self, database_url: str, error: BaseException
    ) -> None:
        """The loop of an async dispatcher is the application's: asyncio ends it, as always."""
        with penstock.connect(database_url) as store:
            check_that_others_go_on(store, error, asyncio.ensure_future)

    @pytest.mark.parametrize(
        "error",
        [
            ValueError("nul \0 and half \ud800"),
            SystemExit(3),
            KeyboardInterrupt(),
            GeneratorExit(),
            asyncio.CancelledError(),
            StopIteration(),
            StaleLease(("another message",)),
            JoinNotFound("another join"),
            ValueError(),
            KeyError("k"),
        ],
    )
    def test_whatever_a_handler_raises_the_dispatcher_goes_on(
        self, store: Store, error: BaseException
    ) -> None:
        dispatcher = new_dispatcher(store, on_failure=ONE_TRY)
        dispatcher.handler("bad")(_on_the_loop(store, _raise(error)))
        dispatcher.handler("good")(lambda message: None)
        store.outbox.enqueue_many([NewMessage("bad"), NewMessage("good")])
        kept = type(error).__name__
        if way_of(store).is_async and isinstance(error, StopIteration):
            kept = "RuntimeError: coroutine raised StopIteration"

        dispatcher.run_until_idle()

        assert states(store) == ["failed", "done"]
        assert str(store.outbox.list()[0].last_error).startswith(kept)

    def test_a_topic_without_a_handler_is_reported_once_and_another_dispatcher_gets_it(
        self, store: Store, caplog: pytest.LogCaptureFixture
    ) -> None:
        store.outbox.enqueue("mail", due=datetime.now(UTC) - timedelta(minutes=2))
        store.outbox.enqueue("fresh")
        without = new_dispatch_loop(store, DispatchOptions("without", report_every=0.0))
        without.run_until_idle()
        without.run_until_idle()
        found = store.outbox.list(topic="mail")[0]
        other = new_dispatcher(store, on_failure=ONE_TRY)
        other.handler("mail")(lambda message: None)

        other.run_until_idle()

        assert (found.state, found.attempts) == ("ready", 0)
        assert found.last_error == "no handler for topic mail in dispatcher without"
        assert [one.last_error for one in store.outbox.list(topic="fresh")] == [None]
        reports = [one for one in caplog.messages if "no handler for topic" in one]
        assert len(reports) == 1
        assert "topic mail here" in reports[0]
        assert states(store) == ["done", "ready"]

    def test_a_topic_that_it_has_no_handler_for_is_left_to_others(self, store: Store) -> None:
        handled: list[object] = []
        without, having = new_dispatcher(store), new_dispatcher(store)
        having.handler("mail")(lambda message: handled.append(message.payload))
        for number in range(3):
            store.outbox.enqueue("mail", number)

        claimed = [without.run_until_idle(), without.run_until_idle()]
        having.run_until_idle()

        assert claimed == [0, 0]
        assert sorted(handled, key=str) == [0, 1, 2]

    def test_a_handler_that_is_added_later_gets_what_was_passed_over(self, store: Store) -> None:
        dispatcher = new_dispatcher(store)
        store.outbox.enqueue("mail")
        dispatcher.run_until_idle()
        dispatcher.handler("mail")(lambda message: None)

        dispatcher.run_until_idle()

        assert states(store) == ["done"]

    def test_a_payload_that_cannot_be_decoded_fails_alone_with_its_reason(
        self, store: Store
    ) -> None:
        handled: list[object] = []
        dispatcher = new_dispatcher(store)
        dispatcher.handler("mail")(lambda message: handled.append(message.payload))
        bad = [
            ("json", b'{"a":'),
            ("json", b""),
            ("json", b"\xff"),
            ("json", b"[" * 100_000),
            ("text", b"\xff"),
        ]
        for encoding, payload in bad:
            sql(
                store,
                "insert into penstock.outbox (id, topic, payload, encoding)"
                " values (gen_random_uuid(), 'mail', %s, %s)",
                payload,
                encoding,
            )
        store.outbox.enqueue("mail", "good")

        dispatcher.run_until_idle()

        assert handled == ["good"]
        listed = store.outbox.list()
        assert [one.state for one in listed] == ["failed"] * 5 + ["done"]
        for one, (encoding, payload) in zip(listed, bad, strict=False):
            assert isinstance(one.payload, UndecodablePayload)
            assert (one.payload.raw, one.payload.encoding) == (payload, encoding)
            assert f"which is not {encoding}: " in str(one.last_error)

    @pytest.mark.parametrize(
        "column", ["created_at", "finished_at", "lease_until", "due", "attempts"]
    )
    def test_a_value_that_python_cannot_hold_stops_nobody(self, store: Store, column: str) -> None:
        value = 2**31 - 1 if column == "attempts" else "-infinity"
        ids = store.outbox.enqueue_many([NewMessage("mail", n) for n in range(2)])
        sql(store, f"update penstock.outbox set {column} = %s where id = %s", value, ids[0])
        dispatcher = new_dispatcher(store)
        dispatcher.handler("mail")(lambda message: None)

        dispatcher.run_until_idle()

        assert len(store.outbox.list()) == 2
        assert states(store) == ["done", "done"]

    def test_an_error_that_cannot_even_be_described_is_an_error_like_others(
        self, store: Store
    ) -> None:
        class Unspeakable(Exception):
            def __str__(self) -> str:
                raise ValueError("no words for it")

        def handle(message: ClaimedMessage) -> None:
            raise Unspeakable

        dispatcher = new_dispatcher(store, on_failure=ONE_TRY)
        dispatcher.handler("mail")(handle)
        store.outbox.enqueue("mail")

        dispatcher.run_until_idle()

        assert store.outbox.list()[0].last_error == "Unspeakable: Unspeakable"

    @pytest.mark.parametrize("due", ["-infinity", "0044-03-15 12:00:00+00 BC"])
    def test_a_due_time_that_python_cannot_hold_keeps_nobody_waiting(
        self, store: Store, due: str
    ) -> None:
        dispatcher = new_dispatcher(store)
        dispatcher.handler("mail")(lambda message: None)
        store.outbox.enqueue_many([NewMessage("mail"), NewMessage("mail")])
        sql(
            store,
            "update penstock.outbox set due = %s::timestamptz"
            " where id = (select min(id::text)::uuid from penstock.outbox) returning id",
            due,
        )

        dispatcher.run_until_idle()

        assert states(store) == ["done", "done"]
        assert min(one.due.year for one in store.outbox.list() if one.due) == 1

    def test_a_lost_connection_does_not_end_it(self, store: Store) -> None:
        dispatcher = new_dispatcher(store, polling_interval_ms=1)
        dispatcher.handler("mail")(lambda message: None)

        with running(dispatcher):
            sql(
                store,
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = current_database() and pid <> pg_backend_pid()",
            )
            store.outbox.enqueue("mail")
            wait_for(store, "bool_and(state = 'done')")

        assert states(store) == ["done"]

    def test_nor_does_a_database_that_is_away_for_a_while(
        self, store: Store, server: Server
    ) -> None:
        dispatcher = new_dispatcher(store, polling_interval_ms=1)
        dispatcher.handler("mail")(lambda message: None)
        store.outbox.enqueue("mail", due=datetime.now(UTC) + timedelta(days=1))

        with logged("waits for the database") as waits, running(dispatcher) as thread:
            with away(store, server):
                while thread.is_alive() and not waits.wait(0.01):
                    pass
            become_due(store)
            if thread.is_alive():
                wait_for(store, "bool_and(state = 'done')")

        assert waits.is_set()
        assert states(store) == ["done"]


_BOUNDS = [(0.5, 1), (1, 2), (2, 4), (30, 60), (30, 60)]


def check_that_others_go_on(
    store: Store, error: BaseException, run: Callable[[Any], Awaitable[None]]
) -> None:
    """Have one async handler fail while another runs, and more afterwards."""
    dispatcher, begun = new_dispatcher(store, on_failure=ONE_TRY, concurrency=3), asyncio.Event()
    go = asyncio.Event()

    async def fail() -> None:
        raise error

    @dispatcher.handler("bad")
    async def bad(message: ClaimedMessage) -> None:
        await begun.wait()
        try:
            await run(fail())
        finally:
            go.set()

    @dispatcher.handler("good")
    async def good(message: ClaimedMessage) -> None:
        begun.set()
        await go.wait()

    @dispatcher.handler("later")
    async def later(message: ClaimedMessage) -> None:
        await asyncio.sleep(0)

    store.outbox.enqueue_many([NewMessage("bad"), NewMessage("good")])
    store.outbox.enqueue_many([NewMessage("later")] * 5)

    dispatcher.run_until_idle()

    assert states(store) == ["failed"] + ["done"] * 6
    assert str(store.outbox.list()[0].last_error).startswith(type(error).__name__)


def _on_the_loop(store: Store, handler: Callable[[ClaimedMessage], None]) -> Any:
    """Have an async dispatcher call a plain function itself, without a thread."""
    return as_is(handler) if way_of(store).is_async else handler


def _raise(error: BaseException) -> Callable[[ClaimedMessage], None]:
    def handle(message: ClaimedMessage) -> None:
        raise error

    return handle


class TestLeases:
    def test_a_handler_may_run_longer_than_its_lease(self, store: Store) -> None:
        dispatcher, stolen = new_dispatcher(store, lease=1.0), list[list[ClaimedMessage]]()

        @dispatcher.handler("slow")
        def handle(message: ClaimedMessage) -> None:
            first = store.outbox.get(message.id).lease_until
            wait_for(
                store,
                "bool_and(lease_until > %s and clock_timestamp() > %s)",
                first,
                first,
            )
            stolen.append(store.outbox.claim("thief"))

        store.outbox.enqueue("slow")
        dispatcher.run_until_idle()

        assert stolen == [[]]
        assert states(store) == ["done"]

    def test_who_lost_a_lease_does_not_settle_the_message(self, store: Store) -> None:
        dispatcher = new_dispatcher(store)
        id = store.outbox.enqueue("mail")

        @dispatcher.handler("mail")
        def handle(message: ClaimedMessage) -> None:
            end_leases(store)
            claim_one(store, "thief")

        dispatcher.run_until_idle()

        message = store.outbox.get(id)
        assert (message.state, message.owner) == ("in_progress", "thief")

    def test_messages_of_the_dead_are_handled_while_others_keep_coming(self, store: Store) -> None:
        store.outbox.enqueue("mail", "of the dead")
        claim_one(store, "dead")
        end_leases(store)
        dispatcher = new_dispatcher(store, concurrency=1, polling_interval_ms=1)

        handled = handled_until(dispatcher, store, "of the dead")

        assert "of the dead" in handled

    def test_a_message_committed_late_is_handled_while_others_keep_coming(
        self, store: Store
    ) -> None:
        late = store.begin_transaction()
        late.outbox.enqueue("mail", "late")
        dispatcher = new_dispatcher(store, concurrency=1, polling_interval_ms=1)

        handled = handled_until(dispatcher, store, "late", after_five=late.commit)

        assert "late" in handled[5:]

    def test_a_cursor_is_where_the_last_claim_began_between_claims_from_the_start(
        self, store: Store
    ) -> None:
        store.outbox.enqueue_many([NewMessage("mail", n) for n in range(2)])
        claimed = store.outbox.claim("me", 2)
        cursor = ClaimCursor()

        first = cursor.take()
        cursor.advance(claimed)
        cursor.next_from_start = float("inf")
        between = cursor.take()
        cursor.advance([])

        assert first == (None, None)
        assert between == (claimed[0].due, claimed[0].id)
        assert cursor.take() == between
        assert cursor.take(from_start=True) == (None, None)

    def test_dispatchers_share_the_work(self, store: Store) -> None:
        handled = list[Any]()
        dispatchers = [new_dispatcher(store, owner=str(n), concurrency=2) for n in range(4)]
        for one in dispatchers:
            one.handler("mail")(lambda message: handled.append(message.payload))
        store.outbox.enqueue_many([NewMessage("mail", n) for n in range(200)])

        at_once(*(one.run_until_idle for one in dispatchers))

        assert sorted(handled) == list(range(200))
        assert {one.state for one in store.outbox.list(limit=200)} == {"done"}

    def test_a_dispatcher_takes_no_more_than_it_gets_through(self, store: Store) -> None:
        dispatcher, release = new_dispatcher(store, concurrency=2), threading.Event()
        begun = threading.Barrier(3)

        @dispatcher.handler("slow")
        def handle(message: ClaimedMessage) -> None:
            if not release.is_set():
                begun.wait(TIMEOUT)
                release.wait(TIMEOUT)

        store.outbox.enqueue_many([NewMessage("slow")] * 20)
        with running(dispatcher):
            begun.wait(TIMEOUT)
            left = store.outbox.claim("another", 100)
            release.set()

        assert len(left) == 18

    def test_what_no_handler_could_begin_goes_to_another_dispatcher(
        self, store: Store, caplog: pytest.LogCaptureFixture
    ) -> None:
        busy, idle = (new_dispatcher(store, concurrency=2, warn_after=0.5) for _ in range(2))
        release, handled = threading.Event(), list[object]()

        @busy.handler("work")
        def hang_or_not(message: ClaimedMessage) -> None:
            if message.payload == "hang":
                release.wait(TIMEOUT)

        idle.handler("work")(lambda message: handled.append(message.payload))
        store.outbox.enqueue_many([NewMessage("work", "quick")] * 200)
        busy.run_until_idle()  # it learns that its handlers are quick
        hanging = [store.outbox.enqueue("work", "hang") for _ in range(2)]
        store.outbox.enqueue_many([NewMessage("work", n) for n in range(300)])

        with running(busy):
            wait_for(store, "count(*) filter (where state = 'in_progress') = 2")
            idle.run_until_idle()
            release.set()

        assert sorted(handled, key=str) == sorted(range(300), key=str)
        assert {one.attempts for one in store.outbox.list(limit=1000)} == {1}
        for id in hanging:
            assert any(
                "the handler of work has been running for" in one and str(id) in one
                for one in caplog.messages
            )

    def test_what_was_done_long_ago_is_removed_by_the_way(self, store: Store) -> None:
        store.outbox.enqueue("mail")
        store.outbox.ack(claim_one(store))

        new_dispatcher(store, keep_done=timedelta(0)).run_until_idle()

        assert store.outbox.list() == []


class TestStop:
    def test_stop_lets_handlers_end_and_gives_back_what_was_not_begun(self, store: Store) -> None:
        dispatcher, begun, go = (
            new_dispatcher(store, concurrency=1),
            threading.Event(),
            threading.Event(),
        )

        @dispatcher.handler("mail")
        def handle(message: ClaimedMessage) -> None:
            if message.payload == "slow":
                begun.set()
                go.wait(TIMEOUT)

        store.outbox.enqueue_many([NewMessage("mail", "quick")] * 50)
        dispatcher.run_until_idle()  # it learns that its handlers are quick
        store.outbox.clean_up(0)
        store.outbox.enqueue_many([NewMessage("mail", "slow")] * 5)
        thread = threading.Thread(target=dispatcher.run)
        thread.start()
        assert begun.wait(TIMEOUT)
        dispatcher.stop()
        wait_for(store, "count(*) filter (where state = 'ready') = 4")
        go.set()
        thread.join(TIMEOUT)

        assert not thread.is_alive()
        assert sorted(states(store)) == ["done", "ready", "ready", "ready", "ready"]
        assert {one.attempts for one in store.outbox.list(state="ready")} == {0}

    @pytest.mark.parametrize(
        ("run", "number"), [("run", signal.SIGTERM), ("run_until_idle", signal.SIGINT)]
    )
    def test_a_signal_ends_a_process_after_its_handler(
        self, store: Store, way: Way, database_url: str, run: str, number: signal.Signals
    ) -> None:
        prepare(store)
        first = store.outbox.enqueue("step", {"do": "wait"})
        store.outbox.enqueue("step", {"do": "wait"})
        with dispatching(database_url, way, lease=0.5, concurrency=1, run=run) as process:
            wait_until(database_url, "select exists (select from handled)")

            process.send_signal(number)
            lease = store.outbox.get(first).lease_until
            wait_until(
                database_url,
                "select lease_until > %s from penstock.outbox where id = %s",
                (lease, first),
            )  # it is extended while the process ends
            sql(store, "insert into gone values (true)")
            _, errors = process.communicate(timeout=TIMEOUT)

        assert (process.returncode, errors) == (0, "")
        assert states(store) == ["done", "ready"]

    def test_a_killed_process_leaves_its_message_to_the_next(
        self, store: Store, way: Way, database_url: str
    ) -> None:
        prepare(store)
        store.outbox.enqueue("step", {"do": "wait"})
        with dispatching(database_url, way, lease=0.5) as process:
            wait_until(database_url, "select exists (select from handled)")
            process.kill()
            process.wait()
        sql(store, "insert into gone values (true)")

        with dispatching(database_url, way):
            wait_until(database_url, "select state = 'done' from penstock.outbox")

        assert sql(store, "select count(*), count(distinct pid) from handled") == [(2, 2)]


class TestRunOnce:
    def test_it_claims_once_and_handles_that(self, store: Store) -> None:
        dispatcher, got = new_dispatcher(store, concurrency=2), list[Any]()
        dispatcher.handler("mail")(lambda message: got.append(message.payload))
        store.outbox.enqueue_many([NewMessage("mail", n) for n in range(3)])

        first, second, third = (dispatcher.run_once() for _ in range(3))

        assert (first, second + third) == (2, 1)
        assert sorted(got) == [0, 1, 2]
        assert states(store) == ["done"] * 3

    def test_nothing_due_is_no_message(self, store: Store) -> None:
        assert new_dispatcher(store).run_once() == 0

    def test_it_finds_messages_of_the_dead(self, store: Store) -> None:
        dispatcher = new_dispatcher(store)
        dispatcher.handler("mail")(lambda message: None)
        store.outbox.enqueue_many([NewMessage("mail")] * 2)
        claim_one(store, "dead")
        dispatcher.run_once()

        end_leases(store)
        handled = dispatcher.run_once()

        assert handled == 1
        assert states(store) == ["done", "done"]


class TestPublish:
    def test_an_outbox_message_becomes_a_message_of_the_log(self, store: Store) -> None:
        dispatcher = new_dispatcher(store)
        dispatcher.publish("Shipped", lambda message: f"shipment-{message.payload['id']}")  # type: ignore[index,call-overload]
        dispatcher.publish("billed", "invoice-1", type="Billed")
        shipped = store.outbox.enqueue("Shipped", {"id": 7}, correlation_id="order-7")
        store.outbox.enqueue("billed", {"total": 5})

        dispatcher.run_until_idle()

        [message] = store.get_stream_messages("shipment-7")
        assert (message.id, message.type, message.data) == (shipped, "Shipped", {"id": 7})
        assert message.correlation_id == "order-7"
        assert [one.type for one in store.get_stream_messages("invoice-1")] == ["Billed"]
        assert states(store) == ["done", "done"]

    def test_each_is_published_once_whoever_else_tries(self, store: Store) -> None:
        dispatchers = [new_dispatcher(store, owner=str(n), lease=0.001) for n in range(4)]
        for one in dispatchers:
            one.publish("counted", "counter-1")
        store.outbox.enqueue_many([NewMessage("counted", {"n": n}) for n in range(50)])

        at_once(*(one.run_until_idle for one in dispatchers))
        become_due(store)
        end_leases(store)
        dispatchers[0].run_until_idle()

        published = [one.data["n"] for one in store.get_stream_messages("counter-1")]
        assert sorted(published) == list(range(50))
        assert {one.state for one in store.outbox.list()} == {"done"}

    def test_who_lost_the_lease_publishes_nothing(self, store: Store) -> None:
        dispatcher, stolen = new_dispatcher(store), list[ClaimedMessage]()

        def stream(message: ClaimedMessage) -> str:
            end_leases(store)
            stolen.append(claim_one(store, "thief"))
            return "counter-1"

        dispatcher.publish("counted", stream)
        id = store.outbox.enqueue("counted", {})
        dispatcher.run_until_idle()

        message = store.outbox.get(id)
        assert [one.id for one in stolen] == [id]
        assert store.get_stream_messages("counter-1") == []
        assert (message.state, message.owner, message.attempts) == ("in_progress", "thief", 2)

    def test_what_can_never_be_published_fails_at_once(self, store: Store) -> None:
        dispatcher = new_dispatcher(store)
        dispatcher.publish("counted", "counter-1")
        dispatcher.publish("nowhere", lambda message: "")
        store.outbox.enqueue("counted", "no object")
        store.outbox.enqueue("nowhere", {})
        taken = store.outbox.enqueue("counted", {})
        store.write_message("counter-2", "Counted", id=taken)

        dispatcher.run_until_idle()

        found = store.outbox.list(state="failed")
        assert [one.attempts for one in found] == [1, 1, 1]
        assert all("cannot be published" in str(one.last_error) for one in found)

    def test_a_backend_killed_while_publishing_leaves_nothing_half_done(
        self, database_url: str
    ) -> None:
        killing = Killing(database_url)
        with penstock.connect(database_url, interceptors=[killing]) as store:
            dispatcher = new_dispatcher(store, on_failure=SOON)
            dispatcher.publish("counted", "counter-1")
            id = store.outbox.enqueue("counted", {})

            dispatcher.run_until_idle()

            message = store.outbox.get(id)
            published = store.get_stream_messages("counter-1")
        assert list(killing.left_behind.values()) == [0]
        assert [one.id for one in published] == [id]
        assert (message.state, message.attempts) == ("done", 2)


class Killing(Interceptor):
    """Kills the first backend that has published and not committed."""

    def __init__(self, url: str) -> None:
        self.url = url
        #: by backend that was killed, how many messages it had committed
        self.left_behind: dict[int, int] = {}

    @contextmanager
    def around(self, call: Call) -> Iterator[None]:
        yield
        if call.name == "write_message" and not self.left_behind:
            self._kill()

    def _kill(self) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            publishing = connection.execute(
                "select pid, pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = current_database() and state = 'idle in transaction'"
            ).fetchall()
            for pid, _ in publishing:
                wait_until_gone(self.url, pid)
                count = connection.execute("select count(*) from message_store.messages")
                self.left_behind[pid] = count.fetchall()[0][0]


def test_a_waits_policy_is_its_own(store: Store) -> None:
    join = store.joins.start(None, 1)
    store.outbox.enqueue("step", joins=[join])
    store.joins.enqueue_wait(join, on_complete_topic="good")
    dispatcher = new_dispatcher(store, on_failure=ONE_TRY, keep_done=None)
    dispatcher.handler("step")(lambda message: None)
    dispatcher.handler("good")(lambda message: None)
    sql(store, "alter table penstock.joins rename to joins_away")
    sql(store, "update penstock.outbox set due = clock_timestamp() where topic = 'join.wait'")
    sql(store, "update penstock.outbox set due = due + interval '1 day' where topic = 'step'")
    dispatcher.run_until_idle()
    trouble = store.outbox.list(topic="join.wait")[0]

    sql(store, "alter table penstock.joins_away rename to joins")
    for _ in range(5):  # a wait that looks while its step ends is due again a moment later
        become_due(store)
        sql(store, "update penstock.outbox set due = clock_timestamp() where due is null")
        dispatcher.run_until_idle()

    assert trouble.state == "ready"
    assert "penstock.joins" in str(trouble.last_error)
    assert store.joins.get(join).status == "completed"
