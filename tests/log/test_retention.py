"""Retention removes the oldest messages, and nothing that somebody still needs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

import penstock
from penstock import (
    AsyncStore,
    Claim,
    CommitMode,
    Consumer,
    Message,
    QueryCondition,
    Store,
    TypedMessage,
    new_id,
)
from penstock.admin import Retained, SlowestReader
from penstock.errors import ConcurrentAppendError, UnsupportedEdition, ValidationError
from penstock.log import retention
from penstock.log.retain import retain
from penstock.log.retain_async import retain as retain_async
from penstock.log.retention import Keep
from tests.consumers.consuming import Numbers, consume, fill, new_category


def numbers(store: Store, category: str) -> list[int]:
    return [one.data["number"] for one in store.read_category(category)]


def held_back(retained: Retained) -> tuple[int, str | None]:
    """How many messages were removed, and whose position kept the others."""
    by = retained.held_back_by
    return retained.removed, None if by is None else by.name


def make_older(url: str, category: str, days: int, below: int) -> None:
    """Let the messages below a number have been written so many days earlier."""
    with psycopg.connect(url) as connection:
        connection.execute(
            "update message_store.messages set time = time - make_interval(days => %s)"
            " where message_store.category(stream_name) = %s and (data ->> 'number')::int < %s",
            (days, category, below),
        )


class TestStream:
    def test_by_count(self, store: Store) -> None:
        fill(store, "order", 5, streams=1)

        assert store.admin.retain("order-0", keep_count=2) == Retained(3, None)
        assert numbers(store, "order") == [3, 4]

    def test_by_age(self, store: Store, database_url: str) -> None:
        fill(store, "order", 5, streams=1)
        make_older(database_url, "order", days=10, below=2)

        assert store.admin.retain("order-0", keep_for=timedelta(days=5)) == Retained(2, None)
        assert numbers(store, "order") == [2, 3, 4]

    def test_by_position(self, store: Store) -> None:
        fill(store, "order", 5, streams=1)

        assert store.admin.retain("order-0", keep_from=4) == Retained(4, None)
        assert numbers(store, "order") == [4]

    def test_other_streams_stay(self, store: Store) -> None:
        fill(store, "order", 4, streams=2)

        store.admin.retain("order-0", keep_count=0)

        assert numbers(store, "order") == [1, 2, 3]

    @pytest.mark.parametrize(
        "keep", [{"keep_count": 0}, {"keep_for": timedelta()}, {"keep_from": 99}]
    )
    def test_the_last_message_stays_so_that_positions_go_on(
        self, store: Store, keep: dict[str, Any]
    ) -> None:
        fill(store, "order", 3, streams=1)

        store.admin.retain("order-0", **keep)

        assert numbers(store, "order") == [2]
        assert store.write_message("order-0", "Placed", {"number": 3}, expected_version=2) == 3

    def test_fewer_than_there_are_to_keep(self, store: Store) -> None:
        fill(store, "order", 3, streams=1)

        assert store.admin.retain("order-0", keep_count=9) == Retained(0, None)
        assert store.admin.retain("order-7", keep_count=1) == Retained(0, None)


class TestCategory:
    def test_by_count(self, store: Store) -> None:
        fill(store, "order", 9, streams=2)
        fill(store, "invoice", 2, streams=1)

        assert store.admin.retain("order", keep_count=4) == Retained(5, None)
        assert numbers(store, "order") == [5, 6, 7, 8]
        assert numbers(store, "invoice") == [0, 1]

    def test_by_age(self, store: Store, database_url: str) -> None:
        fill(store, "order", 9, streams=2)
        make_older(database_url, "order", days=10, below=6)

        assert store.admin.retain("order", keep_for=timedelta(days=5)) == Retained(6, None)

    @pytest.mark.parametrize("target", ["order", "order-0"])
    def test_only_a_prefix_goes_whatever_the_clock_said(
        self, store: Store, database_url: str, target: str
    ) -> None:
        fill(store, "order", 5, streams=1)
        make_older(database_url, "order", days=10, below=4)
        make_older(database_url, "order", days=-10, below=2)
        make_older(database_url, "order", days=10, below=1)

        assert store.admin.retain(target, keep_for=timedelta(days=5)) == Retained(1, None)
        assert numbers(store, "order") == [1, 2, 3, 4]

    def test_by_position(self, store: Store) -> None:
        places = fill(store, "order", 9, streams=2)

        assert store.admin.retain("order", keep_from=places[3]) == Retained(3, None)

    def test_the_last_message_of_each_stream_stays(self, store: Store) -> None:
        fill(store, "order", 9, streams=3)

        assert store.admin.retain("order", keep_count=0) == Retained(6, None)
        assert numbers(store, "order") == [6, 7, 8]

    def test_a_category_without_messages(self, store: Store) -> None:
        assert store.admin.retain("order", keep_count=0) == Retained(0, None)

    def test_an_open_transaction_s_messages_are_none_to_count(self, store: Store) -> None:
        fill(store, "order", 4, streams=1)
        with store.transaction() as slow:
            slow.write_message("order-9", "Placed", {"number": 9})

            assert store.admin.retain("order", keep_count=3) == Retained(1, None)

        assert numbers(store, "order") == [1, 2, 3, 9]

    @pytest.mark.parametrize("target", ["order", "order-0"])
    def test_what_readers_may_not_rely_on_yet_stays(self, store: Store, target: str) -> None:
        fill(store, "order", 2, streams=1)
        with store.transaction() as slow:
            slow.write_message("invoice-1", "Sent")
            for number in (2, 3, 4):
                store.write_message("order-0", "Placed", {"number": number})

            assert store.admin.retain(target, keep_from=10**9).removed == 2

        assert numbers(store, "order") == [2, 3, 4]

    def test_batch_by_batch(self, store: Store) -> None:
        fill(store, "order", 12, streams=2)
        reported: list[int] = []

        retained = retain(store, "order", Keep(count=1), batch_size=4, progress=reported.append)

        assert retained == Retained(10, None)
        assert reported == [4, 8, 10]
        assert numbers(store, "order") == [10, 11]


class TestProtection:
    @pytest.mark.parametrize("positions", ["stream", "table", "hybrid"])
    @pytest.mark.parametrize("target", ["order", "order-0"])
    @pytest.mark.parametrize("reads", ["order", "$all"])
    def test_what_a_consumer_has_not_read_stays(
        self, store: Store, positions: str, target: str, reads: str
    ) -> None:
        places = fill(store, "order", 6, streams=1)
        store.admin.seek(reads, "fast", places[-1], positions)
        store.admin.seek(reads, "slow", places[1], positions)

        assert held_back(store.admin.retain(target, keep_count=1)) == (2, "slow")
        assert numbers(store, "order") == [2, 3, 4, 5]

    @pytest.mark.parametrize("positions", ["stream", "table"])
    def test_one_that_is_put_back_while_a_run_goes_on_loses_no_more(
        self, store: Store, positions: str
    ) -> None:
        places = fill(store, "order", 12, streams=1)
        store.admin.seek("order", "mailer", places[-1], positions)

        retained = retain(
            store,
            "order",
            Keep(count=1),
            batch_size=4,
            progress=lambda _: store.admin.seek("order", "mailer", 0, positions),
        )

        assert held_back(retained) == (4, "mailer")

    def test_one_whose_position_is_garbled_keeps_all(self, store: Store) -> None:
        fill(store, "order", 6, streams=1)
        store.write_message("order:position-mailer", "Recorded", {})

        assert held_back(store.admin.retain("order", keep_count=1)) == (0, "mailer")

    def test_unless_asked_to(self, store: Store) -> None:
        places = fill(store, "order", 6, streams=1)
        store.admin.seek("order", "slow", places[1])

        assert store.admin.retain("order", keep_count=1, ignore_consumers=True) == Retained(5, None)

    def test_one_that_needs_only_what_stays_anyway_holds_nothing_back(self, store: Store) -> None:
        places = fill(store, "order", 3, streams=1)
        store.admin.seek("order", "mailer", places[1])

        assert store.admin.retain("order", keep_count=0) == Retained(2, None)

    def test_a_consumer_of_another_category_holds_nothing_back(self, store: Store) -> None:
        fill(store, "order", 3, streams=1)
        store.admin.seek("invoice", "mailer", 0)

        assert store.admin.retain("order", keep_count=1) == Retained(2, None)

    @pytest.mark.parametrize("target", ["queue-orders", "queue"])
    def test_what_a_session_has_not_read_stays(self, store: Store, target: str) -> None:
        queue = store.queue("orders")
        queue.offer_many(range(6))
        session = queue.create_consumer("worker")
        session.poll()
        session.poll()
        store.queue("others").offer_many(range(3))

        retained = store.admin.retain(target, keep_count=1)

        assert held_back(retained) == (2 if target == "queue-orders" else 4, "worker")
        assert [session.poll().value for _ in range(4)] == [2, 3, 4, 5]  # type: ignore[union-attr]

    @pytest.mark.parametrize("queue", ["order", "order-0"])
    def test_what_a_pipeline_has_not_read_stays(self, store: Store, queue: str) -> None:
        places = fill(store, "order", 6, streams=1)
        process(store, queue, (0, places[1]) if queue == "order" else (-1, 1))

        assert held_back(store.admin.retain("order", keep_count=1)) == (2, "shop.bill")
        assert numbers(store, "order") == [2, 3, 4, 5]


def process(store: Store, queue: str, range: tuple[int, int]) -> None:
    """Do a step of a pipeline, as far as the database knows of it."""
    snapshot = {"hash": "a", "generation": 0, "ranges": {queue: [str(one) for one in range]}}
    with store.transaction() as transaction:
        connection = transaction.connection
        connection.execute("select penstock.open_processor('shop', 'bill', 'stream')")
        transaction.write_message("shop:try-bill", "Snapshot", snapshot)
        connection.execute(
            "select penstock.commit_step('shop', 'bill', %s, '{}', '{}', null)", (Jsonb(snapshot),)
        )


class TestStreamsOfTheirOwn:
    """Streams that are named after their only message, as `append` makes them."""

    def test_go_whole(self, store: Store) -> None:
        append(store, 5)

        assert store.admin.retain("order", keep_count=2) == Retained(3, None)
        assert numbers(store, "order") == [3, 4]

    def test_by_age(self, store: Store, database_url: str) -> None:
        append(store, 5)
        make_older(database_url, "order", days=10, below=3)

        assert store.admin.retain("order", keep_for=timedelta(days=5)) == Retained(3, None)

    def test_one_alone(self, store: Store) -> None:
        append(store, 2)
        first, _ = (one.stream_name for one in store.read_category("order"))

        assert store.admin.retain(first, keep_count=0) == Retained(1, None)
        assert store.get_stream_messages(first) == []

    def test_batch_by_batch(self, store: Store) -> None:
        append(store, 9)
        reported: list[int] = []

        retain(store, "order", Keep(count=1), batch_size=4, progress=reported.append)

        assert reported == [4, 8, 8]

    def test_as_the_sink_and_pipelines_publish_them(self, store: Store) -> None:
        with store.transaction() as transaction:
            transaction.connection.execute(PUBLISH)

        assert store.admin.retain("order", keep_count=1) == Retained(3, None)

    def test_the_last_of_a_category_stays_so_that_its_head_does_not_go_back(
        self, store: Store
    ) -> None:
        append(store, 3)
        head = store.category_head("order")

        assert store.admin.retain("order", keep_count=0) == Retained(2, None)
        assert store.category_head("order") == head

    def test_nor_does_it_while_a_transaction_is_open(self, store: Store) -> None:
        append(store, 2)
        with store.transaction() as slow:
            slow.write_message("invoice-1", "Sent")
            append(store, 1)
            head = store.category_head("order")

            assert store.admin.retain("order", keep_from=10**9) == Retained(1, None)
            assert store.category_head("order") == head

    def test_what_a_consumer_has_not_read_stays(self, store: Store) -> None:
        append(store, 4)
        second = store.get_category_messages("order")[1]
        store.admin.seek("order", "slow", second.global_position)

        assert held_back(store.admin.retain("order", keep_count=0)) == (2, "slow")
        assert numbers(store, "order") == [2, 3]

    @pytest.mark.parametrize("ignored", [False, True])
    def test_one_that_a_session_has_read_stays_for_its_offset(
        self, store: Store, ignored: bool
    ) -> None:
        queue = store.queue(str(id := new_id()))
        store.write_message(queue.stream_name, "Offered", {"value": 1}, id=id)
        session = queue.create_consumer("worker")
        session.poll()
        store.queue("other").offer(2)

        store.admin.retain("queue", keep_count=0, ignore_consumers=ignored)

        assert session.poll() is None
        assert queue.offer(3) == 1

    def test_one_that_was_written_to_again_keeps_its_last_message(self, store: Store) -> None:
        append(store, 2)
        first, _ = (one.stream_name for one in store.read_category("order"))
        store.write_message(first, "order", {"number": 2})

        store.admin.retain("order", keep_count=0)

        assert store.stream_version(first) == 1

    def test_one_with_another_id_in_its_name_stays(self, store: Store) -> None:
        for number in range(2):
            store.write_message(f"order-{new_id()}", "order", {"number": number})

        assert store.admin.retain("order", keep_count=0) == Retained(0, None)

    def test_a_removed_one_begins_again_and_its_message_is_not_recognised(
        self, store: Store
    ) -> None:
        message = Message("order", {"number": 0})
        store.append(message)
        append(store, 1)
        store.admin.retain("order", keep_count=1)

        store.append(message)  # with the same id

        assert numbers(store, "order") == [0, 0]
        stream_name = f"order-{message.id}"
        assert store.write_message(stream_name, "order", {"number": 1}, expected_version=0) == 1

    def test_a_reader_of_a_removed_one_resumes(self, store: Store) -> None:
        append(store, 2)
        first, _ = store.read_category("order")
        store.admin.retain("order", keep_count=1)

        with store.transaction() as transaction:
            resumed = transaction.connection.execute(  # as Spark does with an offset
                "select penstock.still_holds(%s, 0, %s)", (first.stream_name, first.id)
            ).fetchone()
        assert resumed == (True,)


PUBLISH = """
insert into penstock.staged (token, ordinal, category, type, data)
select '00000000-0000-0000-0000-000000000001', n, 'order', 'Placed', '{}'
from generate_series(1, 4) n;
select penstock.publish_staged('{00000000-0000-0000-0000-000000000001}', '{4}')
"""


def append(store: Store, count: int) -> None:
    """Append numbered messages, each with a stream of its own."""
    for number in range(count):
        store.append(Message("order", {"number": number}))


class TestWhoHoldsItBack:
    """The result names the reader, what it needs, and since when."""

    @pytest.mark.parametrize("positions", ["stream", "table"])
    @pytest.mark.parametrize("reads", ["order", "$all"])
    def test_a_consumer(self, store: Store, reads: str, positions: str) -> None:
        fill(store, "order", 4, streams=1)
        store.admin.seek(reads, "mailer", 2, positions)
        third = store.get_category_messages("order")[2]

        by = holder(store, "order")

        assert (by.kind, by.name, by.reads, by.state) == ("consumer", "mailer", reads, None)
        assert (by.needs, by.waiting_since) == (3, third.time)
        assert is_now(by.updated_at)

    def test_a_session(self, store: Store) -> None:
        queue = store.queue("mail")
        queue.offer_many(range(4))
        queue.commit_offset("reader", 1)

        by = holder(store, "queue-mail")

        assert (by.kind, by.name, by.reads) == ("session", "reader", "queue-mail")
        assert by.needs == 1
        assert by.waiting_since == store.get_stream_messages("queue-mail")[1].time
        assert is_now(by.updated_at)

    @pytest.mark.parametrize("queue", ["order", "order-0"])
    def test_a_processor(self, store: Store, queue: str) -> None:
        places = fill(store, "order", 4, streams=1)
        process(store, queue, (0, places[1]) if queue == "order" else (-1, 1))

        by = holder(store, "order")

        assert (by.kind, by.name, by.reads) == ("processor", "shop.bill", queue)
        assert (by.needs, by.state) == (3 if queue == "order" else 2, "active")
        assert by.waiting_since == store.get_category_messages("order")[0].time
        assert is_now(by.updated_at)

    def test_a_processor_that_failed(self, store: Store) -> None:
        fill(store, "order", 4, streams=1)
        process(store, "order", (0, 1))
        with store.transaction() as transaction:
            transaction.connection.execute("select penstock.fail_step('shop', 'bill', 'a', 'no')")

        assert holder(store, "order").state == "failed"

    def test_a_group(self, store: Store) -> None:
        write_readings(store, 3)
        claim_device(store)

        by = holder(store, "device-1")

        assert (by.kind, by.name, by.reads, by.state) == ("group", "group", None, "active")
        assert by.waiting_since == store.get_stream_messages("device-1")[0].time
        assert is_now(by.updated_at)

    def test_a_group_that_was_stopped(self, store: Store) -> None:
        write_readings(store, 3)
        claim_device(store)
        store.groups.stop("group")

        assert holder(store, "device-1").state == "stopped"

    def test_a_group_with_a_parked_partition(self, store: Store) -> None:
        write_readings(store, 3)
        claim = claim_device(store)
        assert claim is not None
        store.groups.release(claim, park=True)
        (parked,) = store.groups.parked("group")

        by = holder(store, "device-1")

        assert (by.state, by.updated_at) == ("parked", parked.parked_at)


def holder(store: Store, target: str) -> SlowestReader:
    by = store.admin.retain(target, keep_count=0).held_back_by
    assert by is not None
    return by


def is_now(moment: datetime | None) -> bool:
    return moment is not None and abs(datetime.now(UTC) - moment) < timedelta(minutes=5)


class TestFallenBehind:
    def test_a_consumer_learns_how_much_it_missed(
        self, store: Store, caplog: pytest.LogCaptureFixture
    ) -> None:
        fill(store, "order", 3, streams=1)
        consume(store, "order", positions="table")
        fill(store, "order", 6, streams=1)
        store.admin.retain("order", keep_count=2, ignore_consumers=True)
        handler = Numbers()
        consumer = Consumer(
            store, "order", "mailer", handlers={"Placed": handler}, positions="table"
        )

        consumer.run_once()

        assert consumer.missed == 4
        assert handler == [4, 5]
        assert "fell behind retention" in caplog.text

    def test_while_it_runs(self, store: Store) -> None:
        fill(store, "order", 9, streams=1)
        handler = Numbers()
        consumer = Consumer(
            store,
            "order",
            "mailer",
            handlers={"Placed": handler},
            positions="table",
            batch_size=2,
        )
        consumer.run_once()

        store.admin.retain("order", keep_count=3, ignore_consumers=True)
        while consumer.run_once():
            pass

        assert (handler, consumer.missed) == ([0, 1, 6, 7, 8], 4)

    def test_of_the_whole_log(self, store: Store) -> None:
        fill(store, "order", 2, streams=1)
        consume(store, "$all", positions="table")
        fill(store, "order", 4, streams=1)
        store.admin.retain("order", keep_count=1, ignore_consumers=True)
        consumer = Consumer(
            store, "$all", "mailer", handlers={"Placed": Numbers()}, positions="table"
        )

        consumer.run_once()

        assert consumer.missed == 3

    def test_what_it_had_read_it_did_not_miss(self, store: Store) -> None:
        fill(store, "order", 5, streams=1)
        consume(store, "order")
        store.admin.retain("order", keep_count=1)
        store.write_message("invoice-1", "Sent")
        fill(store, "order", 1)
        consumer = Consumer(store, "order", "mailer", handlers={"Placed": Numbers()})

        consumer.run_once()

        assert consumer.missed == 0

    def test_a_new_consumer_missed_nothing(self, store: Store) -> None:
        fill(store, "order", 5, streams=1)
        store.admin.retain("order", keep_count=1)
        consumer = Consumer(store, "order", "mailer", handlers={"Placed": Numbers()})

        consumer.run_once()

        assert consumer.missed == 0

    @pytest.mark.parametrize("mode", CommitMode)
    def test_a_session_learns_it_too(self, store: Store, mode: CommitMode) -> None:
        queue = store.queue("orders")
        queue.offer_many(range(6))
        session = queue.create_consumer("worker", mode)

        store.admin.retain(queue.stream_name, keep_count=2, ignore_consumers=True)
        record = session.poll()

        assert record is not None
        assert (record.value, session.missed) == (4, 4)


class TestRights:
    @pytest.mark.parametrize("role", ["message_store", "penstock_reader"])
    def test_only_the_owner_may(self, store: Store, database_url: str, role: str) -> None:
        fill(store, "order", 3, streams=1)
        with psycopg.connect(database_url) as connection:
            connection.execute(f"set role {role}".encode())

            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                store.using(connection).run(
                    retention.remove_batch(
                        "order", retention.Bounds(10**9, 10**9, None, []), ignore_consumers=True
                    )
                )

        assert numbers(store, "order") == [0, 1, 2]


class TestBadInput:
    @pytest.mark.parametrize(
        "wrong",
        [
            {},
            {"keep_count": 1, "keep_from": 1},
            {"keep_count": -1},
            {"keep_count": 1.5},
            {"keep_from": -1},
            {"keep_for": timedelta(days=-1)},
            {"keep_for": 5},
            {"target": "", "keep_count": 1},
            {"target": "$all", "keep_count": 1},
            {"keep_count": 1, "ignore_consumers": 1},
            {"keep_count": 1, "ignore_consumers": None},
        ],
    )
    def test_is_refused(self, store: Store, wrong: dict[str, Any]) -> None:
        with pytest.raises(ValidationError):
            store.admin.retain(**{"target": new_category(), **wrong})

    def test_message_db_alone_cannot(self, new_database: Callable[[str], str]) -> None:
        with penstock.connect(new_database("genuine")) as store, pytest.raises(UnsupportedEdition):
            store.admin.retain("order", keep_count=1)


async def test_async_code_does_the_same(async_store: AsyncStore) -> None:
    for number in range(6):
        await async_store.write_message("order-1", "Placed", {"number": number})

    in_batches = await retain_async(async_store, "order", Keep(count=3), batch_size=2)
    retained = await async_store.admin.retain("order", keep_count=1)

    assert (in_batches, retained) == (Retained(3, None), Retained(2, None))


class ReadingTaken(TypedMessage, type="retention.reading_taken"):
    device_id: str


def test_what_a_partitioned_group_has_not_handled_stays(store: Store) -> None:
    write_readings(store, 3)
    claim = claim_device(store)
    assert claim is not None

    waiting = store.admin.retain("device-1", keep_count=1)
    store.groups.ack(claim)
    handled = store.admin.retain("device-1", keep_count=1)

    assert held_back(waiting) == (0, "group")
    assert handled.removed == 2


def test_what_a_partitioned_group_has_not_routed_stays(store: Store) -> None:
    write_readings(store, 1)
    claim = claim_device(store)
    assert claim is not None
    store.groups.ack(claim)

    write_readings(store, 3)

    assert held_back(store.admin.retain("device-1", keep_count=1)) == (1, "group")
    assert count_handled(store) == 3


def test_what_a_parked_partition_has_not_handled_stays(store: Store) -> None:
    write_readings(store, 3)
    claim = claim_device(store)
    assert claim is not None

    store.groups.release(claim, park=True)

    assert held_back(store.admin.retain("device-1", keep_count=1)) == (0, "group")
    store.groups.resume("group")
    assert count_handled(store) == 3


def test_what_a_partitioned_group_has_to_route_again_stays(store: Store) -> None:
    def moved(*unindexed: str) -> type[TypedMessage]:
        class DeviceMoved(TypedMessage, type="retention.device_moved", unindexed=unindexed):
            device_id: str
            house: str

        return DeviceMoved

    unindexed = moved("device_id")
    for _ in range(3):
        store.write_message("device-1", unindexed(device_id="1", house="a"))
    store.groups.register("group")
    before = count_handled(store, unindexed)

    store.declare(moved())  # only now the messages have a partition

    assert held_back(store.admin.retain("device-1", keep_count=1)) == (0, "group")
    assert (before, count_handled(store, unindexed)) == (0, 3)


class TestWhatIsIndexed:
    def test_a_guard_whose_boundary_was_removed_still_holds(self, store: Store) -> None:
        store.append([ReadingTaken(device_id="1") for _ in range(3)])
        _, guard = store.read(DEVICE_1)
        store.admin.retain(READING, keep_count=1)

        store.append(ReadingTaken(device_id="1"), guard=guard)

        assert len(store.get_category_messages(READING)) == 2

    def test_and_still_finds_what_was_written_since(self, store: Store) -> None:
        store.append([ReadingTaken(device_id="1") for _ in range(3)])
        _, guard = store.read(DEVICE_1)
        store.append(ReadingTaken(device_id="1"))
        store.admin.retain(READING, keep_count=1)

        with pytest.raises(ConcurrentAppendError):
            store.append(ReadingTaken(device_id="1"), guard=guard)

    def test_attributes_and_feeds_go_with_the_messages(self, store: Store) -> None:
        store.append([ReadingTaken(device_id=str(number)) for number in range(4)])
        while claim := claim_device(store):
            store.groups.ack(claim)

        store.admin.retain(READING, keep_count=1)

        with store.transaction() as transaction:
            left = transaction.connection.execute(
                "select (select count(distinct global_position) from penstock.message_attributes"
                " where key_pair <> penstock.removal_key()),"
                " (select count(*) from penstock.group_feeds)"
            ).fetchone()
        assert left == (1, 1)


READING = "retention.reading_taken"
DEVICE_1 = [QueryCondition(READING, "device_id", "1")]


def write_readings(store: Store, count: int) -> None:
    for _ in range(count):
        store.write_message("device-1", ReadingTaken(device_id="1"))


def claim_device(store: Store, type: type[TypedMessage] = ReadingTaken) -> Claim | None:
    store.groups.register("group")
    return store.groups.claim_next("group", partition_by="device_id", handled_types=[type])


def count_handled(store: Store, type: type[TypedMessage] = ReadingTaken) -> int:
    """Handle what there is, and return how much it was."""
    count = 0
    while claim := claim_device(store, type):
        count += len(claim.messages)
        store.groups.ack(claim)
    return count
