"""Calls that meet in one process are sent as one batch, and each has its own outcome."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import Any
from uuid import UUID

import psycopg
import pytest

import penstock
from penstock import (
    ConcurrentAppendError,
    Guard,
    Interceptor,
    Message,
    Store,
    TypedMessage,
    WrongExpectedVersion,
    new_id,
)
from penstock.database.batch import MOST_MESSAGES, write_batch
from penstock.database.coalescer import LEAST_TAKEN, MOST_UNBATCHED
from penstock.database.waiters import Registration, of_category
from penstock.errors import (
    CommandTimeout,
    DuplicateMessageId,
    StoreClosed,
    TransactionConflict,
    UndeclaredType,
    ValidationError,
    WriteQueueFull,
)
from penstock.log.append import append
from penstock.message.serializer import JsonSerializer
from tests.both_ways import Way, store
from tests.conftest import Server
from tests.log.meeting import (
    coalescer_of,
    meeting,
    most_in_a_transaction,
    transactions,
    wait_until_waiting,
    waiting,
)
from tests.racing import (
    at_once,
    pause,
    wait_for_lock_or_end,
    wait_until_blocked,
    wait_until_it_waits,
)

__all__ = ["store"]
pytestmark = pytest.mark.timeout(90)


@pytest.fixture
def blocking_store(server: Server, database_url: str) -> Iterator[Store]:
    """A store in one form, where the form does not matter."""
    with server.store(database_url, penstock.connect) as store:
        yield store


class Taken(TypedMessage, type="coalescing.taken"):
    course: str
    student: str = ""


def taken(store: Any, course: str) -> tuple[Taken, Guard]:
    """A decision to take a seat of a course, on what there is now."""
    return Taken(course=course), store.read(Taken.to_conditions(course=course))[1]


def test_calls_that_meet_are_written_in_one_transaction_and_each_gets_its_result(
    store: Any, database_url: str
) -> None:
    store.write_message("account-2", "Opened")
    seat, guard = taken(store, "Algebra")

    with meeting(store, database_url) as meet:
        meet.call(store.write_message, "account-1", "Opened", {"n": 1}, {"m": 2})
        meet.call(store.write_messages, "account-2", [Message("Paid"), Message("Paid")])
        meet.call(store.append, seat, guard)
        meet.call(store.append, [Message("Noted"), Message("Noted")], stream_name="diary-1")
        meet.call(store.write_message, "account-3", "Opened", returning="global_position")

    one, two, three, four, five = meet.outcomes()
    assert (one, two) == (0, [1, 2])
    [recorded] = store.read(Taken.to_conditions(course="Algebra"))[0]
    assert three.position == recorded.global_position
    assert three.guard.seen == ((three.position, three.position),)
    diary = store.get_stream_messages("diary-1")
    assert four.positions == tuple(one.global_position for one in diary)
    assert four.guard is None
    assert five == store.get_last_stream_message("account-3").global_position
    assert store.get_last_stream_message("account-1").data == {"n": 1}
    assert store.get_last_stream_message("account-1").metadata == {"m": 2}
    assert transactions(database_url, "account-1", "account-3", "diary", "coalescing.taken") == 1


def test_many_calls_are_halved_so_that_some_prepare_while_others_are_written(
    store: Any, database_url: str
) -> None:
    with meeting(store, database_url) as meet:
        for number in range(30):
            meet.call(store.write_message, f"account-{number}", "Opened")

    assert meet.outcomes() == [0] * 30
    assert transactions(database_url, "account") == 2


@pytest.mark.parametrize("way", ["async"], indirect=True)  # of threads one is under way
def test_where_many_tasks_wait_a_second_batch_is_sent_while_one_is_under_way(
    store: Any, database_url: str
) -> None:
    with meeting(store, database_url, one_at_a_time=False) as meet:
        for number in range(LEAST_TAKEN - 1):
            meet.call(store.write_message, f"account-{number}", "Opened")
        assert store.write_message("account-9", "Opened") == 0  # it sends them
        meanwhile = meet.outcomes()

    assert meanwhile == [0] * (LEAST_TAKEN - 1)
    assert transactions(database_url, "account") == 1


@pytest.mark.parametrize("way", ["async"], indirect=True)  # of threads one is under way
def test_two_batches_that_get_in_each_other_s_way_are_followed_by_one_at_a_time(
    store: Any, database_url: str
) -> None:
    with (
        ThreadPoolExecutor(1) as thread,
        psycopg.connect(database_url) as holder,
        meeting(store, database_url, one_at_a_time=False) as meet,
    ):
        holder.execute("select penstock.lock_stream('account-1')")  # as the first batch would
        for _ in range(LEAST_TAKEN - 1):
            meet.call(store.write_message, "account-1", "Paid")
        last = thread.submit(store.write_message, "account-1", "Paid")  # it sends them, in vain
        while coalescer_of(store)._one_at_a_time == 0:
            pause()
        for number in range(LEAST_TAKEN):
            meet.call(store.write_message, f"other-{number}", "Paid")  # all of them wait
        meet.end()
        assert meet.calls[-1].result() == 0
        holder.rollback()

    assert sorted([*meet.outcomes()[:-LEAST_TAKEN], last.result()]) == list(range(LEAST_TAKEN))
    assert meet.outcomes()[-LEAST_TAKEN:] == [0] * LEAST_TAKEN
    assert transactions(database_url, "other") == 1


def test_calls_are_written_in_order_of_arrival(store: Any, database_url: str) -> None:
    with meeting(store, database_url) as meet:
        for number in range(10):
            meet.call(store.write_message, "account-1", "Paid", {"number": number})

    assert meet.outcomes() == list(range(10))
    assert [one.data["number"] for one in store.get_stream_messages("account-1")] == [*range(10)]
    assert transactions(database_url, "account-1") == 1


def test_a_call_that_is_refused_does_not_affect_the_others(store: Any, database_url: str) -> None:
    existing = Message("Opened")
    store.write_message("account-9", existing)
    seat, stale = taken(store, "Algebra")
    position = store.append(Taken(course="Algebra")).position

    with meeting(store, database_url) as meet:
        meet.call(store.write_message, "account-1", "Opened")
        meet.call(store.write_message, "account-2", "Opened", expected_version=4)
        meet.call(store.append, seat, stale)
        meet.call(store.write_message, "account-3", existing)
        meet.call(store.write_messages, "account-4", [existing, Message("Opened")])
        meet.call(store.append, Message("Noted"), Guard((penstock.QueryCondition("unknown"),)))
        meet.call(store.write_message, "account-5", "Opened")

    first, version, guard, *duplicates, unknown, last = meet.outcomes()
    assert (first, last) == (0, 0)
    assert isinstance(version, WrongExpectedVersion)
    assert (version.stream_name, version.expected, version.actual) == ("account-2", 4, -1)
    assert isinstance(guard, ConcurrentAppendError)
    assert (guard.type, guard.position) == ("coalescing.taken", position)
    for duplicate in duplicates:
        assert isinstance(duplicate, DuplicateMessageId)
        assert (str(duplicate.id), duplicate.stream_name) == (str(existing.id), "account-9")
    assert isinstance(unknown, UndeclaredType)
    assert {one.stream_name for one in store.streams("account")} == {
        "account-1",
        "account-5",
        "account-9",
    }


def test_of_two_calls_that_exclude_each_other_the_first_is_written(
    store: Any, database_url: str
) -> None:
    seat, guard = taken(store, "Algebra")

    with meeting(store, database_url) as meet:
        meet.call(store.append, seat, guard)
        meet.call(store.append, Taken(course="Algebra"), guard)
        meet.call(store.append, Taken(course="History"), guard)
        meet.call(store.write_message, "account-1", "Opened", expected_version=-1)
        meet.call(store.write_message, "account-1", "Opened", expected_version=-1)
        meet.call(store.write_message, "account-1", "Closed", expected_version=0)

    written, second, elsewhere, opened, opened_again, closed = meet.outcomes()
    assert isinstance(second, ConcurrentAppendError)
    assert isinstance(elsewhere, ConcurrentAppendError)
    assert second.position == elsewhere.position == written.position
    assert (opened, closed) == (0, 1)
    assert isinstance(opened_again, WrongExpectedVersion)
    assert opened_again.actual == 0
    assert transactions(database_url, "account-1", "coalescing.taken") == 1


def test_a_call_that_is_refused_does_not_count_for_later_ones(
    store: Any, database_url: str
) -> None:
    _, stale = taken(store, "Algebra")
    store.append(Taken(course="Algebra"))
    _, current = taken(store, "Algebra")

    with meeting(store, database_url) as meet:
        meet.call(store.append, Taken(course="Algebra", student="late"), stale)
        meet.call(store.append, Taken(course="Algebra", student="first"), current)
        meet.call(store.write_message, "account-1", "Paid", expected_version=7)
        meet.call(store.write_message, "account-1", "Opened", expected_version=-1)

    late, first, paid, opened = meet.outcomes()
    assert isinstance(late, ConcurrentAppendError)
    assert isinstance(paid, WrongExpectedVersion)
    assert opened == 0
    assert (
        store.read(Taken.to_conditions(course="Algebra"))[0][-1].global_position == first.position
    )


def test_a_message_that_has_another_value_of_a_watched_attribute_is_no_conflict(
    store: Any, database_url: str
) -> None:
    conditions = Taken.to_conditions(course="Algebra", student="joe")
    _, guard = store.read(conditions)

    with meeting(store, database_url) as meet:
        meet.call(store.append, Taken(course="Algebra", student="jake"))
        meet.call(store.append, Taken(course="Algebra", student="joe"), guard)
        meet.call(store.append, Taken(course="Algebra", student="joe"), guard)

    _, written, refused = meet.outcomes()
    assert isinstance(refused, ConcurrentAppendError)
    assert refused.position == written.position


def test_a_retry_that_meets_the_first_attempt_gets_its_position(
    store: Any, database_url: str
) -> None:
    message, seat, guard = Message("Opened"), *taken(store, "Algebra")
    earlier = Message("Opened")
    store.write_messages("account-2", [Message("Opened"), earlier])

    with meeting(store, database_url) as meet:
        meet.call(store.write_message, "account-1", message, expected_version=-1)
        meet.call(store.write_message, "account-1", message, expected_version=-1)
        meet.call(store.append, seat, guard)
        meet.call(store.append, seat, guard)
        meet.call(store.write_message, "account-2", earlier, expected_version=0)

    first, again, appended, appended_again, found = meet.outcomes()
    assert (first, again, found) == (0, 0, 1)
    assert appended_again == appended
    assert len(store.get_stream_messages("account-1")) == 1


def test_a_call_that_has_to_wait_for_a_lock_does_not_hold_up_the_others(
    store: Any, database_url: str
) -> None:
    seat, guard = taken(store, "Algebra")
    with psycopg.connect(database_url) as holder, meeting(store, database_url) as meet:
        holder.execute(
            "select message_store.write_message(%s, 'account-1', 'Opened', '{}')", (str(new_id()),)
        )
        holder.execute(
            """select penstock.append_one(null, %s, 'coalescing.taken', '{"course": "Algebra"}')""",
            (new_id(),),
        )
        on_stream = meet.call(store.write_message, "account-1", "Paid")
        on_boundary = meet.call(store.append, seat, guard)
        free = [
            meet.call(store.write_message, "account-2", "Opened"),
            meet.call(store.append, *taken(store, "History")),
        ]

        meet.end()
        results = [one.result() for one in free]
        for one in (on_stream, on_boundary):
            wait_until_it_waits(database_url, one, 2)
        holder.commit()

    assert results[0] == 0
    assert on_stream.result() == 1
    assert isinstance(on_boundary.exception(), ConcurrentAppendError)


@contextmanager
def writing(url: str, id: UUID) -> Iterator[psycopg.Connection[Any]]:
    """A transaction that is writing a message with this id, for which a batch has to wait."""
    with psycopg.connect(url) as holder:
        holder.execute(
            "insert into message_store.messages (id, stream_name, position, type)"
            " values (%s, 'elsewhere-1', 0, 'Noted')",
            (id,),
        )
        yield holder


def test_decisions_and_writers_elsewhere_wait_for_a_batch_and_see_its_messages(
    store: Any, database_url: str
) -> None:
    seat, guard = taken(store, "Algebra")
    late = Message("Noted")
    with (
        ThreadPoolExecutor(3) as threads,
        penstock.connect(database_url, coalesce=False) as elsewhere,
        writing(database_url, late.id) as holder,
        meeting(store, database_url) as meet,
    ):
        elsewhere.read(Taken.to_conditions(course="Algebra"))  # which declares the class
        open_to_others = Taken(course="Algebra")
        meet.call(store.append, open_to_others)
        meet.call(store.append, Taken(course="History"), taken(store, "History")[1])
        meet.call(store.write_message, "account-1", "Opened")
        meet.call(store.append, late)
        meet.end()
        wait_until_it_waits(database_url, meet.calls[-1])

        decision = threads.submit(elsewhere.append, seat, guard)
        wait_until_it_waits(database_url, decision, 2)
        writer = threads.submit(elsewhere.append, Taken(course="History"))
        wait_until_it_waits(database_url, writer, 3)
        version = threads.submit(
            elsewhere.write_message, "account-1", "Opened", expected_version=-1
        )
        wait_until_it_waits(database_url, version, 4)
        holder.rollback()

    assert isinstance(decision.exception(), ConcurrentAppendError)
    assert isinstance(version.exception(), WrongExpectedVersion)
    assert writer.result().position > meet.calls[1].result().position


def test_a_message_that_another_transaction_wrote_meanwhile_is_not_acknowledged(
    store: Any, database_url: str
) -> None:
    message = Message("Noted")
    with writing(database_url, message.id) as holder, meeting(store, database_url) as meet:
        twice = meet.call(store.append, message)
        other = meet.call(store.write_message, "account-1", "Opened")
        meet.end()
        wait_until_it_waits(database_url, twice)
        holder.commit()

    assert isinstance(twice.exception(), DuplicateMessageId)
    assert other.result() == 0


def test_a_decision_in_a_batch_does_not_pass_a_bulk_append(store: Any, database_url: str) -> None:
    _, guard = taken(store, "Algebra")
    with penstock.connect(database_url) as elsewhere, meeting(store, database_url) as meet:
        elsewhere.read(Taken.to_conditions(course="Algebra"))
        with elsewhere.transaction() as bulk:
            bulk.append([Taken(course="Algebra", student=str(n)) for n in range(500)])
            decision = meet.call(store.append, Message("Noted"), guard)
            meet.end()
            wait_until_it_waits(database_url, decision)

    assert isinstance(decision.exception(), ConcurrentAppendError)


def test_a_batch_neither_passes_a_declaration_nor_waits_for_it(
    blocking_store: Store, database_url: str
) -> None:
    message = Message("device.seen", {"device_id": "a"})
    batch = write_batch([append(blocking_store.context, [message])])
    with psycopg.connect(database_url) as declaring, ThreadPoolExecutor(1) as threads:
        declaring.execute("select penstock.declare_type('device.seen', '{device_id}')")
        written = threads.submit(blocking_store.run, batch)
        has_waited = wait_for_lock_or_end(database_url, written)
        declaring.commit()

    assert not has_waited
    assert isinstance(written.exception(), TransactionConflict)


def test_nobody_waits_for_calls_that_went_alone_and_wait_for_a_lock(
    store: Any, database_url: str
) -> None:
    streams = [f"held-{number}" for number in range(MOST_UNBATCHED)]
    with psycopg.connect(database_url) as holder, ThreadPoolExecutor(MOST_UNBATCHED) as threads:
        holder.execute("select penstock.lock_stream(name) from unnest(%s::text[]) name", (streams,))
        wait = [threads.submit(store.write_message, name, "Opened") for name in streams]
        wait_until_blocked(database_url, MOST_UNBATCHED)

        others = [store.write_message(f"account-{number}", "Opened") for number in range(2, 6)]

        holder.rollback()
    assert others == [0, 0, 0, 0]
    assert [one.result() for one in wait] == [0] * MOST_UNBATCHED


def test_of_many_calls_on_a_stream_that_is_locked_one_waits_in_the_server(
    store: Any, database_url: str
) -> None:
    """The others wait in the process, so they leave its connections to calls on other streams."""
    with psycopg.connect(database_url) as holder, ThreadPoolExecutor(40) as threads:
        holder.execute("select penstock.lock_stream('account-1')")
        wait = [threads.submit(store.write_message, "account-1", "Opened") for _ in range(40)]
        wait_until_waiting(store, 39)
        wait_until_blocked(database_url, 1)

        others = [store.write_message(f"account-{number}", "Opened") for number in range(2, 6)]

        assert waiting(store) == 39
        holder.rollback()
    assert others == [0, 0, 0, 0]
    assert sorted(one.result() for one in wait) == [*range(40)]
    assert transactions(database_url, "account-1") < 10


def test_when_a_call_gets_no_lock_in_time_those_that_wait_for_it_try_all_at_once(
    way: Way, database_url: str
) -> None:
    """One after the other, the last would fail only after all of their timeouts."""
    with (
        way.connect(database_url, command_timeout_ms=1_000) as store,
        psycopg.connect(database_url) as holder,
        ThreadPoolExecutor(5) as threads,
    ):
        holder.execute("select penstock.lock_stream('account-1')")
        wait = [threads.submit(store.write_message, "account-1", "Opened") for _ in range(5)]
        wait_until_waiting(store, 4)
        wait_until_blocked(database_url, 4)
        holder.rollback()

    outcomes = [one.exception() or one.result() for one in wait]
    assert sorted(one for one in outcomes if isinstance(one, int)) == [0, 1, 2, 3]
    assert [type(one) for one in outcomes if not isinstance(one, int)] == [CommandTimeout]


def test_calls_on_a_stream_that_a_batch_finds_locked_go_together_once_it_is_free(
    store: Any, database_url: str
) -> None:
    with psycopg.connect(database_url) as holder, meeting(store, database_url) as meet:
        holder.execute("select penstock.lock_stream('account-1')")
        for _ in range(20):
            meet.call(store.write_message, "account-1", "Opened")
        meet.call(store.write_message, "account-2", "Opened")
        meet.end()
        wait_until_blocked(database_url, 1)
        waited = waiting(store)
        holder.rollback()

    assert sorted(meet.outcomes()) == [0, *range(20)]
    assert waited >= 15
    assert transactions(database_url, "account-1") < 10


def test_few_callers_go_alone(store: Any, database_url: str) -> None:
    calls = [
        lambda number=number: store.write_message(f"account-{number}", "Opened")
        for number in range(MOST_UNBATCHED)
    ]

    assert at_once(*calls) == [0] * MOST_UNBATCHED
    assert transactions(database_url, "account") == MOST_UNBATCHED


def test_a_call_in_a_transaction_and_a_large_one_do_not_queue(
    store: Any, database_url: str
) -> None:
    many = [Message("Paid") for _ in range(MOST_MESSAGES // 2 + 1)]
    with meeting(store, database_url) as meet:
        queued = meet.call(store.write_message, "account-1", "Opened")
        with store.transaction() as transaction:
            in_transaction = transaction.write_message("account-2", "Opened")
        large = store.write_messages("account-3", many)
        is_waiting = waiting(store)

    assert (in_transaction, large) == (0, [*range(len(many))])
    assert (is_waiting, queued.result()) == (1, 0)


def test_without_coalescing_each_call_has_a_transaction(way: Way, database_url: str) -> None:
    with way.connect(database_url, coalesce=False) as store:
        calls = [
            lambda number=number: store.write_message(f"account-{number}", "Opened")
            for number in range(8)
        ]
        assert at_once(*calls) == [0] * 8

    assert transactions(database_url, "account") == 8


@pytest.mark.parametrize("edition", ["beside", "genuine"])
def test_on_a_genuine_message_db_each_call_has_a_transaction(
    way: Way, server: Server, new_database: Callable[[str], str], edition: str
) -> None:
    url = new_database(edition)
    with way.store(server, url) as store:
        calls = [
            lambda number=number: store.write_message(f"account-{number}", "Opened")
            for number in range(4)
        ]
        assert at_once(*calls) == [0] * 4

    assert transactions(url, "account") == 4


def test_a_batch_wakes_those_who_wait_for_its_messages(store: Any, database_url: str) -> None:
    woken = Event()
    waiter = Registration([of_category("account")], woken.set)

    with meeting(store, database_url) as meet:
        store.context.wake_ups.waiters.add(waiter)
        meet.call(store.write_message, "account-1", "Opened")
        meet.call(store.write_message, "account-2", "Opened")
    meet.outcomes()

    assert woken.wait(60)
    assert waiter.notified_of == {of_category("account")}


class Wide(TypedMessage, type="wide"):
    """Each message takes twenty locks of its own."""

    a: str
    b: str
    c: str
    d: str
    e: str
    f: str
    g: str
    h: str
    i: str
    j: str
    k: str
    m: str
    n: str
    o: str
    p: str
    q: str
    r: str
    s: str
    t: str
    u: str


def wide(number: int) -> Wide:
    return Wide(**{name: f"{name}{number}" for name in "abcdefghijkmnopqrstu"})


def test_a_batch_that_would_take_too_many_locks_is_sent_in_parts(
    store: Any, database_url: str
) -> None:
    store.append(wide(-1))

    with meeting(store, database_url) as meet:
        for number in range(60):
            meet.call(store.append, wide(number))

    positions = [one.position for one in meet.outcomes()]
    assert positions == sorted(positions)
    assert 20 * most_in_a_transaction(database_url, "wide") < 500


def test_a_call_that_would_take_too_many_locks_by_itself_runs_alone(
    store: Any, database_url: str
) -> None:
    store.append(wide(-1))

    with meeting(store, database_url) as meet:
        many = meet.call(store.append, [wide(number) for number in range(50)])
        meet.call(store.append, wide(100))

    assert len(many.result().positions) == 50
    assert transactions(database_url, "wide") == 3


class Careless(JsonSerializer):
    """Writes one type as JSON that PostgreSQL refuses, and raises for another."""

    def encode(self, type: str, value: Mapping[str, Any]) -> str:
        if type == "Raises":
            raise ValueError("no such thing")
        return "{oops}" if type == "Invalid" else super().encode(type, value)


def test_a_bad_call_among_good_ones_gets_its_own_error(way: Way, database_url: str) -> None:
    with way.connect(database_url, serializer=Careless()) as store:
        with meeting(store, database_url) as meet:
            meet.call(store.write_message, "account-1", "Opened")
            with pytest.raises(ValidationError):
                store.write_message("account-2", "Raises", {"a": 1})
            with pytest.raises(ValidationError):
                store.write_message("-", "Opened")
            meet.call(store.write_message, "account-3", "Invalid", {"a": 1})
            meet.call(store.write_message, "account-4", "Opened")

        first, invalid, last = meet.outcomes()
        assert (first, last) == (0, 0)
        assert isinstance(invalid, psycopg.errors.InvalidTextRepresentation)
        assert {one.stream_name for one in store.streams("account")} == {"account-1", "account-4"}


def test_when_the_queue_is_full_another_call_is_refused(way: Way, database_url: str) -> None:
    with way.connect(database_url, max_queued_writes=2) as store:
        with meeting(store, database_url) as meet:
            meet.call(store.write_message, "account-1", "Opened")
            meet.call(store.write_message, "account-2", "Opened")
            with pytest.raises(WriteQueueFull, match=r"2 calls wait to be written.*max_queued"):
                store.write_message("account-3", "Opened")

        assert meet.outcomes() == [0, 0]
        assert store.stream_version("account-3") is None


def test_a_store_closed_while_calls_wait_gives_each_a_result_or_an_error(
    way: Way, database_url: str
) -> None:
    store = way.connect(database_url)
    with meeting(store, database_url) as meet:
        for number in range(4):
            meet.call(store.write_message, f"account-{number}", "Opened")
        store.close()

    assert [type(one) for one in meet.outcomes()] == [StoreClosed] * 4
    assert transactions(database_url, "account") == 0


class Recording(Interceptor):
    def __init__(self) -> None:
        self.seen: list[tuple[str, Any, object]] = []

    @contextmanager
    def around(self, call: Any) -> Iterator[None]:
        error: object = None
        try:
            yield
        except Exception as raised:
            error = type(raised)
            raise
        finally:
            self.seen.append((call.name, call.facts.get("stream_name"), error or call.result))


def test_interceptors_see_each_call_with_its_result_or_error(way: Way, database_url: str) -> None:
    recording = Recording()
    with way.connect(database_url, interceptors=[recording]) as store:
        with meeting(store, database_url) as meet:
            meet.call(store.write_message, "account-1", "Opened")
            meet.call(store.write_message, "account-2", "Opened", expected_version=3)
            recording.seen.clear()
        meet.outcomes()

    calls = {stream_name: (name, result) for name, stream_name, result in recording.seen}
    assert calls["account-1"] == ("write_message", 0)
    assert calls["account-2"] == ("write_message", WrongExpectedVersion)
    assert "write_batch" not in {name for name, _, _ in recording.seen}


async def held(url: str, store: penstock.AsyncStore) -> tuple[Any, list[asyncio.Task[Any]]]:
    """Hold a batch as `meeting` does, in this event loop. To be ended by `holder.rollback()`."""
    id, holder = new_id(), await psycopg.AsyncConnection.connect(url)
    await holder.execute(
        "select penstock.lock_stream('held-' || n) from generate_series(1, %s) n", (MOST_UNBATCHED,)
    )
    await holder.execute(
        "insert into message_store.messages (id, stream_name, position, type)"
        " values (%s, 'holder-1', 0, 'Held')",
        (id,),
    )
    held: list[asyncio.Task[Any]] = [
        asyncio.create_task(store.write_message(f"held-{number}", "Held"))
        for number in range(1, MOST_UNBATCHED + 1)
    ]
    await asyncio.to_thread(wait_until_blocked, url, MOST_UNBATCHED)
    held.append(asyncio.create_task(store.append(Message("Held", id=id))))
    await asyncio.to_thread(wait_until_blocked, url, MOST_UNBATCHED + 1)
    return holder, held


async def queued(store: penstock.AsyncStore, *names: str) -> list[asyncio.Task[int]]:
    tasks = []
    for name in names:
        tasks.append(asyncio.create_task(store.write_message(name, "Opened")))
        await asyncio.to_thread(wait_until_waiting, store, len(tasks))
    return tasks


async def test_a_task_that_is_cancelled_while_it_waits_writes_nothing(
    async_store: penstock.AsyncStore, database_url: str
) -> None:
    holder, _ = await held(database_url, async_store)
    first, second, third = await queued(async_store, "account-1", "account-2", "account-3")

    for one in (first, third):  # the next to lead, and one that would not
        one.cancel()
    await asyncio.wait([first, third])
    await holder.rollback()

    assert await second == 0
    assert first.cancelled()
    assert third.cancelled()
    assert [one.stream_name for one in await async_store.streams("account")] == ["account-2"]
    await holder.close()


async def test_a_task_that_is_cancelled_once_its_batch_is_sent_does_not_stop_the_batch(
    async_store: penstock.AsyncStore, database_url: str
) -> None:
    holder, [*_, leader] = await held(database_url, async_store)
    [waits] = await queued(async_store, "account-1")

    leader.cancel()
    await asyncio.wait([leader])
    await holder.rollback()

    assert leader.cancelled()
    assert await waits == 0
    [message] = await async_store.get_category_messages("Held")
    assert message.stream_name.startswith("Held-")
    await holder.close()


async def test_a_task_that_is_cancelled_as_it_is_to_lead_lets_another_one_lead(
    async_store: penstock.AsyncStore, database_url: str
) -> None:
    holder, [*_, leader] = await held(database_url, async_store)
    first, second = await queued(async_store, "account-1", "account-2")

    # its turn comes in the same step of the loop in which it is cancelled
    coalescer = async_store._pool._coalescer
    coalescer._waiting[0].signal._future.add_done_callback(lambda _: first.cancel())
    await holder.rollback()
    await leader

    assert await second == 0
    await asyncio.wait([first])
    assert waiting(async_store) == 0
    await holder.close()


def test_a_store_can_be_used_after_its_event_loop_was_closed_under_waiting_tasks(
    database_url: str,
) -> None:
    async def leave_waiting(store: penstock.AsyncStore) -> Any:
        holder, tasks = await held(database_url, store)
        return holder, [*tasks, *await queued(store, "account-1", "account-2")]

    loop = asyncio.new_event_loop()
    store = loop.run_until_complete(penstock.connect_async(database_url))
    holder, tasks = loop.run_until_complete(leave_waiting(store))
    for task in tasks:
        task._log_destroy_pending = False
    loop.close()
    holder.pgconn.finish()

    async def go_on() -> list[int]:
        calls = [store.write_message(f"later-{number}", "Opened") for number in range(4)]
        return await asyncio.gather(*calls)

    assert asyncio.run(go_on()) == [0, 0, 0, 0]
    del tasks, task
    store._pool.close()


def test_event_loops_that_share_a_store_do_not_queue_in_each_others_place(
    database_url: str,
) -> None:
    store = asyncio.run(penstock.connect_async(database_url))
    places: dict[object, object] = {}
    pause, interval = time.sleep, sys.getswitchinterval()

    async def look() -> bool:
        here, is_own = asyncio.get_running_loop(), True
        for _ in range(10_000):
            pause(1e-5)  # another thread goes on
            is_own &= places.setdefault(store._pool._coalescer_here(), here) is here
        return is_own

    sys.setswitchinterval(1e-6)
    try:
        found = at_once(*[lambda: asyncio.run(look())] * 3)
    finally:
        sys.setswitchinterval(interval)

    assert found == [True] * 3
    store._pool.close()
