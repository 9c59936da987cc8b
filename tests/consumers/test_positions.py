"""Positions in a stream, in a table, or in both: saving, conflicts, moving, and their overview."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from threading import Thread
from typing import Any

import psycopg
import pytest

from penstock import Consumer, FailurePolicy, RecordedMessage, Store, Transaction
from penstock.consumers.positions import (
    NONE_YET,
    StoredPosition,
    TablePositions,
    positions_for,
)
from penstock.consumers.progress import Progress, Subscription
from penstock.database.operation import Operation
from penstock.errors import InvalidPosition, PositionConflict, UnsupportedEdition, ValidationError
from penstock.log.context import LogContext
from penstock.loops.durations import Duration
from tests.both_ways import Way
from tests.consumers.consuming import Numbers, consume, fill, new_category, new_consumer
from tests.racing import wait_until_it_waits

KINDS = ["stream", "table", "hybrid"]
EPOCH = datetime.fromtimestamp(0, UTC)
every_kind = pytest.mark.parametrize("positions", KINDS)


def history(store: Store, category: str) -> list[int]:
    """The positions in the position stream."""
    stream_name = f"{category}:position-mailer"
    return [one.data["position"] for one in store.get_stream_messages(stream_name)]


def row(url: str, category: str) -> int | None:
    """The position in the table."""
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "select position from penstock.consumer_positions where consumer_id = %s",
            (f"{category}-mailer",),
        ).fetchone()
    return None if found is None else int(found[0])


class TestKeptInAStream:
    def test_as_message_db_s_consumers_keep_it(self, any_store: Store) -> None:
        positions = fill(any_store, "order", 3)

        consume(any_store, "order")

        last = any_store.get_last_stream_message("order:position-mailer")
        assert last is not None
        assert (last.type, last.data) == ("PositionUpdated", {"position": positions[-1]})

    def test_one_that_another_client_wrote_is_found(self, any_store: Store) -> None:
        positions = fill(any_store, "order", 3)
        any_store.write_message("order:position-mailer", "Recorded", {"position": positions[1]})

        assert consume(any_store, "order") == [2]

    @pytest.mark.parametrize(
        "garbage",
        [{}, {"position": "12"}, {"position": -1}, {"position": None}, {"position": 1.5}],
    )
    def test_garbage_is_reported(self, shared_store: Store, garbage: dict[str, Any]) -> None:
        category = new_category()
        fill(shared_store, category, 1)
        shared_store.write_message(f"{category}:position-mailer", "Recorded", garbage)

        with pytest.raises(InvalidPosition, match=f"{category}:position-mailer"):
            consume(shared_store, category)

    @pytest.mark.parametrize("garbage", ["9999", "\u0663", 2**63, 10**30, 1.5, -1])
    def test_garbage_is_no_position_to_operators_either(
        self, store: Store, garbage: object
    ) -> None:
        fill(store, "order", 3, streams=1)
        store.write_message("order:position-mailer", "Recorded", {"position": garbage})

        (status,) = store.admin.consumers()
        retained = store.admin.retain("order", keep_count=0)

        assert (status.position, status.behind) == (None, 3)
        assert retained.held_back_by is not None
        assert (retained.removed, retained.held_back_by.name) == (0, "mailer")

    def test_the_highest_one_is_taken(self, store: Store) -> None:
        store.write_message("order:position-mailer", "Recorded", {"position": 2**63 - 1})

        (status,) = store.admin.consumers()

        assert status.position == 2**63 - 1

    def test_a_stream_without_an_id_is_no_consumer_s(self, store: Store) -> None:
        fill(store, "order", 3, streams=1)
        store.write_message("order:position", "Recorded", {"position": 0})

        assert store.admin.consumers() == []
        assert store.admin.retain("order", keep_count=0).removed == 2


@every_kind
class TestSaving:
    def test_after_so_many_messages_and_at_the_end(
        self, shared_store: Store, shared_url: str, positions: str
    ) -> None:
        category = new_category()
        places = fill(shared_store, category, 7)
        saved: list[int | None] = []
        consumer = new_consumer(
            shared_store, category, "mailer", positions=positions, position_update_interval=3
        )

        @consumer.handler("Placed")
        def look(message: RecordedMessage) -> None:
            in_stream = [None, *history(shared_store, category)][-1]
            saved.append(in_stream if positions == "stream" else row(shared_url, category))

        consumer.run_once()

        assert saved == [None] * 3 + [places[2]] * 3 + [places[5]]
        assert consume(shared_store, category, positions=positions) == []

    def test_nothing_new_saves_nothing(self, shared_store: Store, positions: str) -> None:
        category = new_category()
        fill(shared_store, category, 1)
        consume(shared_store, category, positions=positions)
        before = history(shared_store, category)

        consume(shared_store, category, positions=positions)

        assert history(shared_store, category) == before

    def test_a_second_process_under_the_same_id_is_noticed(
        self, shared_store: Store, positions: str
    ) -> None:
        category = new_category()
        options: dict[str, Any] = {"positions": positions, "handlers": {"Placed": Numbers()}}
        one = new_consumer(shared_store, category, "mailer", **options)
        other = new_consumer(shared_store, category, "mailer", **options)
        fill(shared_store, category, 1)
        one.run_once()
        other.run_once()
        fill(shared_store, category, 1)
        one.run_once()

        with pytest.raises(PositionConflict, match=f"{category}-mailer"):
            other.run_once()

    def test_transactional_twins_do_a_message_once(
        self, shared_store: Store, positions: str
    ) -> None:
        category, done = new_category(), new_category("done")

        def twin() -> Consumer:
            consumer = new_consumer(
                shared_store, category, "mailer", positions=positions, transactional=True
            )

            @consumer.handler("Placed")
            def copy(message: RecordedMessage, transaction: Transaction) -> None:
                transaction.write_message(f"{done}-1", "Done", message.data)

            consumer.run_once()
            return consumer

        one, other = twin(), twin()
        fill(shared_store, category, 1)
        one.run_once()
        with pytest.raises(PositionConflict):
            other.run_once()

        numbers = [message.data["number"] for message in shared_store.read_category(done)]
        assert numbers == [0]

    def test_a_save_that_is_sent_twice_counts_once(
        self, shared_store: Store, positions: str
    ) -> None:
        category = new_category()
        context, kept = shared_store.context, positions_for(positions, category, "mailer")
        stored = shared_store.run(kept.load(context))
        save = kept.save(context, stored, 5)

        saved = [shared_store.run(save), shared_store.run(save)]

        assert saved[0] == saved[1]
        assert shared_store.run(kept.load(context)).position == 5

    def test_moved_while_it_runs_it_stops(self, shared_store: Store, positions: str) -> None:
        category = new_category()
        fill(shared_store, category, 4)
        consumer = new_consumer(shared_store, category, "mailer", positions=positions, batch_size=2)
        consumer.handler("Placed")(Numbers())
        consumer.run_once()

        shared_store.admin.seek(category, "mailer", 0, positions)

        with pytest.raises(PositionConflict):
            consumer.run_once()
        assert consume(shared_store, category, positions=positions) == [0, 1, 2, 3]


class TestAtOnce:
    def test_a_save_that_waits_for_others_sees_what_they_stored(
        self, shared_store: Store, shared_url: str
    ) -> None:
        context, positions = shared_store.context, TablePositions(new_category(), "mailer")
        first = shared_store.run(positions.save(context, NONE_YET, 1))

        with ThreadPoolExecutor(1) as threads:
            with shared_store.transaction() as saving:
                second = saving.run(positions.save(context, first, 2))
                saving.run(positions.save(context, second, 3))
                late = threads.submit(shared_store.run, positions.save(context, first, 9))
                wait_until_it_waits(shared_url, late)
            with pytest.raises(PositionConflict):
                late.result()

        assert shared_store.run(positions.load(context)).position == 3

    def test_of_two_first_saves_one_is_refused(self, shared_store: Store, shared_url: str) -> None:
        context, positions = shared_store.context, TablePositions(new_category(), "mailer")

        with ThreadPoolExecutor(1) as threads:
            with shared_store.transaction() as saving:
                saving.run(positions.save(context, NONE_YET, 1))
                late = threads.submit(shared_store.run, positions.save(context, NONE_YET, 9))
                wait_until_it_waits(shared_url, late)
            with pytest.raises(PositionConflict):
                late.result()

        assert shared_store.run(positions.load(context)).position == 1


class Noted:
    """Positions in the table that record which saves had to be durable."""

    def __init__(self, category: str, consumer_id: str) -> None:
        self.durable: list[bool] = []
        self._table = TablePositions(category, consumer_id)

    def load(self, context: LogContext) -> Operation[StoredPosition]:
        return self._table.load(context)

    def save(
        self, context: LogContext, stored: StoredPosition, position: int, *, durable: bool = True
    ) -> Operation[StoredPosition]:
        self.durable.append(durable)
        return self._table.save(context, stored, position, durable=durable)


class TestIdling:
    @pytest.mark.parametrize("delay", [0.05, timedelta(milliseconds=50)])
    def test_what_was_handled_is_saved_before_long(
        self, shared_store: Store, shared_url: str, delay: Duration
    ) -> None:
        category = new_category()
        (place,) = fill(shared_store, category, 1)
        consumer = new_consumer(
            shared_store,
            category,
            "mailer",
            handlers={"Placed": Numbers()},
            positions="table",
            polling_interval_ms=10,
            idle_save_delay=delay,
        )
        running = Thread(target=consumer.run)
        running.start()
        try:
            deadline = time.monotonic() + 30
            while row(shared_url, category) != place and time.monotonic() < deadline:
                time.sleep(0.01)
            saved = row(shared_url, category)  # while it still runs
        finally:
            consumer.stop()
            running.join(60)

        assert saved == place

    def test_the_looks_become_rarer_until_something_comes(self, shared_store: Store) -> None:
        progress = Progress(
            "mailer",
            Subscription(shared_store.context, "order"),
            TablePositions("order", "mailer"),
            start="beginning",
            batch_size=100,
            polling_interval_ms=100,
            longest_polling_interval_ms=500,
            position_update_interval=100,
            idle_save_delay=1.0,
        )

        pauses = [progress.pause(length) for length in (0, 0, 0, 0, 0, 7, 0, 0)]

        assert pauses == [0.1, 0.2, 0.4, 0.5, 0.5, 0.1, 0.1, 0.2]


class TestDurability:
    """A position that is saved alone need not be durable; one that is saved with writes must be."""

    @pytest.mark.parametrize(("durable", "expected"), [(False, "off"), (True, "on")])
    def test_of_one_transaction_only(self, shared_url: str, durable: bool, expected: str) -> None:
        with psycopg.connect(shared_url) as connection:
            connection.execute(
                "select penstock.save_position(%s, 1, null, gen_random_uuid(), %s)",
                (new_category(), durable),
            )
            inside = connection.execute("show synchronous_commit").fetchone()
            connection.commit()
            after = connection.execute("show synchronous_commit").fetchone()

        assert (inside, after) == ((expected,), ("on",))

    @pytest.mark.parametrize("transactional", [False, True])
    def test_of_what_a_handler_writes_with_it(
        self, shared_store: Store, transactional: bool
    ) -> None:
        category = new_category()
        fill(shared_store, category, 1)
        noted = Noted(category, "mailer")

        consume(shared_store, category, positions=noted, transactional=transactional)

        assert noted.durable == [transactional]

    @every_kind
    def test_of_all_that_writes_messages(self, shared_store: Store, positions: str) -> None:
        context, kept = shared_store.context, positions_for(positions, new_category(), "mailer")
        stored = shared_store.run(kept.load(context))
        relaxed = []

        for _ in range(11):
            save = kept.save(context, stored, 5, durable=False)
            with shared_store.transaction() as transaction:
                stored = transaction.run(save)
                row = transaction.connection.execute("show synchronous_commit").fetchone()
            relaxed.append(row == ("off",))

        tenths = [False, *[True] * 9, False]
        all_but_first = [False, *[True] * 10]
        assert (
            relaxed == {"stream": [False] * 11, "table": all_but_first, "hybrid": tenths}[positions]
        )


class TestHybrid:
    def test_the_row_goes_first(self, shared_store: Store, shared_url: str) -> None:
        category = new_category()
        positions = fill(shared_store, category, 3)
        shared_store.admin.seek(category, "mailer", positions[1], "table")
        shared_store.admin.seek(category, "mailer", positions[0], "stream")

        assert consume(shared_store, category, positions="hybrid") == [2]
        assert row(shared_url, category) == positions[2]

    def test_without_a_row_the_stream_is_asked(self, shared_store: Store, shared_url: str) -> None:
        category = new_category()
        positions = fill(shared_store, category, 3)
        shared_store.admin.seek(category, "mailer", positions[1], "stream")

        assert consume(shared_store, category, positions="hybrid") == [2]
        assert row(shared_url, category) == positions[2]

    def test_a_garbled_stream_does_no_harm_while_there_is_a_row(self, shared_store: Store) -> None:
        category = new_category()
        positions = fill(shared_store, category, 2)
        shared_store.admin.seek(category, "mailer", positions[0], "table")
        shared_store.write_message(f"{category}:position-mailer", "Recorded", {})

        assert consume(shared_store, category, positions="hybrid") == [1]

    def test_every_tenth_position_is_history(self, shared_store: Store) -> None:
        category = new_category()
        positions = fill(shared_store, category, 21)

        consume(shared_store, category, positions="hybrid", position_update_interval=1)

        assert history(shared_store, category) == [positions[0], positions[10], positions[20]]


class TestOverview:
    @every_kind
    def test_position_head_and_backlog(self, store: Store, positions: str) -> None:
        places = fill(store, "order", 2)
        consume(store, "order", positions=positions)
        *_, head = fill(store, "order", 3)
        store.write_message("invoice-1", "Sent")

        (status,) = store.admin.consumers()

        assert (status.category, status.consumer_id) == ("order", "mailer")
        assert status.kept_in == ("stream" if positions == "stream" else "table")
        assert (status.position, status.head, status.behind) == (places[-1], head, 3)
        assert status.seconds_behind >= 0
        assert (datetime.now(UTC) - status.updated_at).total_seconds() < 300

    def test_one_that_has_read_all_is_not_behind(self, store: Store) -> None:
        fill(store, "order", 2)
        consume(store, "order", positions="table")

        (status,) = store.admin.consumers()

        assert (status.behind, status.oldest_waiting, status.seconds_behind) == (0, None, 0)

    def test_of_the_whole_log(self, store: Store) -> None:
        fill(store, "order", 2)
        consume(store, "$all", positions="table")
        fill(store, "order", 3)

        (status,) = store.admin.consumers()

        assert (status.category, status.behind, status.head) == ("$all", 3, 5)

    def test_the_backlog_is_counted_up_to_a_limit(self, store: Store) -> None:
        fill(store, "order", 5)
        store.admin.seek("order", "mailer", 0, "table")

        assert [one.behind for one in store.admin.consumers(count_up_to=2)] == [2]

    def test_they_come_in_pages(self, store: Store) -> None:
        for category, name, kind in (
            *(("order", "b", "table"), ("order", "a", "stream")),
            *(("mail", "z", "stream"), ("order", "c", "hybrid")),
        ):
            store.admin.seek(category, name, 0, kind)

        first = store.admin.consumers(limit=3)
        last = (first[-1].category, first[-1].consumer_id)
        second = store.admin.consumers(after=last, limit=3)

        names = [(one.category, one.consumer_id) for one in (*first, *second)]
        assert names == [("mail", "z"), ("order", "a"), ("order", "b"), ("order", "c")]
        assert len(first) == 3

    @every_kind
    def test_one_alone_is_as_in_the_list(self, store: Store, positions: str) -> None:
        fill(store, "order", 3)
        store.admin.seek("order", "mailer", 1, positions)
        store.admin.seek("order", "mailer-2", 2, positions)

        one = store.admin.consumer("order", "mailer")

        assert one is not None
        assert replace(one, as_of=EPOCH) == replace(store.admin.consumers()[0], as_of=EPOCH)
        assert (one.position, one.behind) == (1, 2)
        assert store.admin.consumer("order", "nobody") is None

    def test_parked_messages_and_the_last_error_are_in_it(self, store: Store) -> None:
        fill(store, "order", 3)

        def fail(message: RecordedMessage) -> None:
            raise RuntimeError(f"no {message.global_position}")

        parks = FailurePolicy.park(attempts=1)
        Consumer(store, "order", "mailer", handlers={"Placed": fail}, on_failure=parks).run_once()
        store.admin.drop_parked("order", "mailer", 3)

        (status,) = store.admin.consumers()

        assert (status.parked, status.parked_at_least) == (2, False)
        assert status.last_error == "RuntimeError: no 2"

    @pytest.mark.parametrize(
        "wrong", [{"limit": 0}, {"limit": True}, {"after": "order"}, {"after": ("order", None)}]
    )
    def test_a_page_is_checked(self, shared_store: Store, wrong: dict[str, Any]) -> None:
        with pytest.raises(ValidationError, match=next(iter(wrong))):
            shared_store.admin.consumers(**wrong)
        with pytest.raises(ValidationError, match=next(iter(wrong))):
            shared_store.admin.sessions(**wrong)

    def test_an_id_may_have_hyphens(self, store: Store) -> None:
        for kind in KINDS[:2]:
            store.admin.seek("order", f"mailer-{kind}-0", 0, kind)

        ids = [one.consumer_id for one in store.admin.consumers()]

        assert ids == ["mailer-stream-0", "mailer-table-0"]

    def test_garbage_has_no_position(self, store: Store) -> None:
        fill(store, "order", 2)
        store.write_message("order:position-mailer", "Recorded", {"position": "none"})

        (status,) = store.admin.consumers()

        assert (status.position, status.behind) == (None, 2)

    def test_message_db_alone_has_none(self, way: Way, new_database: Callable[[str], str]) -> None:
        with way.connect(new_database("genuine")) as store, pytest.raises(UnsupportedEdition):
            store.admin.consumers()


class TestMoving:
    @every_kind
    def test_forwards_and_back(self, shared_store: Store, positions: str) -> None:
        category = new_category()
        places = fill(shared_store, category, 3)
        consume(shared_store, category, positions=positions)

        shared_store.admin.seek(category, "mailer", places[0], positions)
        back = consume(shared_store, category, positions=positions)
        shared_store.admin.seek(category, "mailer", 0, positions)
        shared_store.admin.seek(category, "mailer", places[1], positions)
        forwards = consume(shared_store, category, positions=positions)

        assert (back, forwards) == ([1, 2], [2])

    def test_to_a_moment(self, shared_store: Store, shared_url: str) -> None:
        category = new_category()
        places = fill(shared_store, category, 4)
        with psycopg.connect(shared_url) as connection:
            connection.execute(
                "update message_store.messages set time = '2020-01-01'::timestamp"
                " + global_position * interval '1 day' where global_position = any (%s)",
                (places,),
            )
        third = shared_store.get_category_messages(category)[2].time

        found = shared_store.admin.position_before(category, third)

        assert places[1] <= found < places[2]

    @pytest.mark.parametrize("category", ["order", "$all"])
    def test_to_a_moment_after_all(self, store: Store, category: str) -> None:
        *_, head = fill(store, "order", 2)
        moment = datetime(2999, 1, 1, tzinfo=UTC)

        assert store.admin.position_before(category, moment) == head

    def test_to_a_moment_before_all(self, store: Store) -> None:
        fill(store, "order", 2)
        moment = datetime(1999, 1, 1, tzinfo=UTC)

        assert [store.admin.position_before(one, moment) for one in ("order", "$all")] == [0, 0]

    @pytest.mark.parametrize(
        "wrong",
        [
            {"category": "order-1"},
            {"consumer_id": ""},
            {"position": -1},
            {"position": 1.5},
            {"kept_in": "file"},
            {"kept_in": []},
            {"position": 10**9},
            {"position": 2**63 - 1},
        ],
    )
    def test_bad_input(self, shared_store: Store, wrong: dict[str, Any]) -> None:
        right: dict[str, Any] = {"category": "order", "consumer_id": "mailer", "position": 0}

        with pytest.raises(ValidationError):
            shared_store.admin.seek(**{**right, **wrong})

    @pytest.mark.parametrize("wrong", [-1, 1.5, "", None, True])
    def test_a_count_is_a_whole_number(self, shared_store: Store, wrong: Any) -> None:
        with pytest.raises(ValidationError, match="count_up_to"):
            shared_store.admin.consumers(wrong)

    def test_to_the_end_of_the_log_and_no_further(self, any_store: Store) -> None:
        end = fill(any_store, "order", 2)[-1]
        any_store.admin.seek("order", "mailer", end)

        with pytest.raises(ValidationError, match=f"{end + 1}, the end of the log"):
            any_store.admin.seek("order", "mailer", end + 9)

        fill(any_store, "order", 1)
        assert consume(any_store, "order") == [0]

    def test_an_empty_log_ends_at_0(self, store: Store) -> None:
        with pytest.raises(ValidationError, match="0, the end of the log"):
            store.admin.seek("order", "mailer", 1)

    def test_a_moment_without_a_time_zone_is_refused(self, shared_store: Store) -> None:
        with pytest.raises(ValidationError, match="time zone"):
            shared_store.admin.position_before("order", datetime(2020, 1, 1))  # noqa: DTZ001
