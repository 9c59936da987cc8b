"""A large delivery is published in slices; whoever goes on with it loses and doubles nothing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any
from uuid import uuid4

import psycopg
import pytest

import penstock
from penstock import Store
from penstock.errors import DuplicateMessageId, TransactionConflict, WrongExpectedVersion
from penstock.spark.write.staging import Published, Staged
from tests.spark.faults.waiting import wait_until_blocked
from tests.spark.reading import struct
from tests.spark.writing import IDENTIFIED, MESSAGE, VERSIONED, Writer

SLICE = 10


def stage_numbers(writer: Writer, count: int, attempt: str = "first") -> Staged:
    """Stage numbers for three streams; the last ten of them are in a category of their own."""
    return writer.stage(
        MESSAGE,
        *(
            (
                f"{'late' if number >= count - SLICE else 'number'}-{number % 3}",
                attempt,
                f'{{"n": {number}}}',
            )
            for number in range(count)
        ),
    )


def numbers(store: Store, category: str = "$all") -> list[int]:
    return [one.data["n"] for one in store.read_category(category)]


def transactions(writer: Writer) -> int:
    """Return how many transactions wrote the messages that are there: each has its own time."""
    row = writer.connection.execute(
        "select count(distinct time) from message_store.messages"
    ).fetchone()
    assert row is not None
    return int(row[0])


def fail_at_the_last_slice(writer: Writer, staged: Staged, url: str, **options: Any) -> None:
    """Publish all slices but the last, whose category somebody else keeps."""
    with penstock.connect(url) as other, other.transaction() as busy:
        busy.lock_categories("late")
        writer.connection.execute("set lock_timeout = '50ms'")
        with pytest.raises(TransactionConflict):
            writer.publish(staged, source="job", rows_per_transaction=SLICE, **options)
        writer.connection.execute("reset lock_timeout")


def test_each_slice_is_a_transaction(writer: Writer, store: Store) -> None:
    published = writer.publish(stage_numbers(writer, 35), source="job", rows_per_transaction=SLICE)

    assert published == Published(35, 1, 35)
    assert transactions(writer) == 4
    assert numbers(store) == list(range(35))
    assert (writer.count("penstock.staged"), writer.count("penstock.stagings")) == (0, 0)


def test_up_to_a_slice_it_is_one_transaction(writer: Writer) -> None:
    writer.publish(stage_numbers(writer, SLICE), source="job", rows_per_transaction=SLICE)

    assert transactions(writer) == 1


def test_a_delivery_that_is_to_be_seen_at_once_is_one_transaction(writer: Writer) -> None:
    writer.publish(stage_numbers(writer, 35), source="job")

    assert transactions(writer) == 1


def test_rows_that_nobody_would_recognize_are_one_transaction(writer: Writer) -> None:
    writer.publish(stage_numbers(writer, 35), rows_per_transaction=SLICE)

    assert transactions(writer) == 1


def test_rows_that_expect_versions_are_one_transaction(writer: Writer, store: Store) -> None:
    store.write_message("b-1", "Before")
    rows = [(f"a-{number}", "T", "{}", -1) for number in range(35)]
    wrong = writer.stage(VERSIONED, *rows, ("b-1", "T", "{}", -1))
    with pytest.raises(WrongExpectedVersion):
        writer.publish(wrong, source="job", rows_per_transaction=SLICE)
    assert numbers_of_messages(store) == 1

    right = writer.stage(VERSIONED, *rows)
    writer.publish(right, source="job", rows_per_transaction=SLICE)

    assert numbers_of_messages(store) == 36
    assert transactions(writer) == 2


def numbers_of_messages(store: Store) -> int:
    return len(list(store.read_category("$all")))


def test_the_order_of_the_writer_holds_across_slices_and_tokens(
    writer: Writer, store: Store
) -> None:
    schema = struct(stream_name="string", type="string", data="string", at="double")
    parts = [
        writer.stage(
            schema,
            *((f"a-{n % 2}", "T", f'{{"n": {n}}}', float(n)) for n in range(first, 40, 2)),
            order_by="at",
        )
        for first in (1, 0)
    ]

    writer.publish(*parts, source="job", rows_per_transaction=SLICE)

    assert numbers(store) == list(range(40))
    for stream in ("a-0", "a-1"):
        positions = [one.position for one in store.get_stream_messages(stream)]
        assert positions == list(range(20))


def test_messages_without_a_stream_get_one_each(writer: Writer, store: Store) -> None:
    staged = writer.stage(MESSAGE, *((None, "Counted", f'{{"n": {n}}}') for n in range(25)))

    writer.publish(staged, source="job", rows_per_transaction=SLICE)

    assert numbers(store, "Counted") == list(range(25))
    assert {one.position for one in store.read_category("Counted")} == {0}


class TestFailedInBetween:
    def test_a_retry_goes_on_with_the_rows_of_the_first_attempt(
        self, writer: Writer, store: Store, database_url: str
    ) -> None:
        fail_at_the_last_slice(writer, stage_numbers(writer, 35), database_url)
        meanwhile = numbers(store)

        again = writer.publish(
            stage_numbers(writer, 77, "again"), source="job", rows_per_transaction=SLICE
        )

        assert meanwhile == list(range(30))[: len(meanwhile)]
        assert 0 < len(meanwhile) < 35
        assert again == Published(35, 1, again.last_position, True)
        assert numbers(store) == list(range(35))
        assert {one.type for one in store.read_category("$all")} == {"first"}
        assert writer.count("penstock.staged") == 0

    @pytest.mark.parametrize("batch", [0, 1])
    def test_who_wants_one_transaction_gets_the_rest_in_one(
        self, writer: Writer, store: Store, database_url: str, batch: int
    ) -> None:
        fail_at_the_last_slice(writer, stage_numbers(writer, 45), database_url)
        before = transactions(writer)

        writer.publish(stage_numbers(writer, 12, "again"), source="job", batch=batch)

        assert transactions(writer) == before + 1
        assert numbers(store) == [*range(45), *(range(12) if batch else ())]

    def test_the_next_batch_begins_when_the_last_is_whole(
        self, writer: Writer, store: Store, database_url: str
    ) -> None:
        fail_at_the_last_slice(writer, stage_numbers(writer, 35), database_url)

        writer.publish(stage_numbers(writer, 35), source="job", batch=1, rows_per_transaction=SLICE)

        assert numbers(store) == [*range(35), *range(35)]

    def test_others_write_between_the_slices(
        self, writer: Writer, store: Store, database_url: str
    ) -> None:
        fail_at_the_last_slice(writer, stage_numbers(writer, 45), database_url)
        for stream in ("number-0", "late-0"):
            store.write_message(stream, "Other", {"n": -1})

        writer.publish(source="job", rows_per_transaction=SLICE)

        assert sorted(numbers(store)) == [-1, -1, *range(45)]
        for stream in ("number-0", "late-0"):
            found = store.get_stream_messages(stream)
            assert [one.position for one in found] == list(range(len(found)))
            ours = [one.data["n"] for one in found if one.type == "first"]
            assert all(low < high for low, high in pairwise(ours))

    def test_two_publish_the_same_slice(
        self, writer: Writer, store: Store, database_url: str
    ) -> None:
        rows = [(None, "late", f'{{"n": {number}}}') for number in range(25)]
        fail_at_the_last_slice(writer, writer.stage(MESSAGE, *rows), database_url)
        publish_slice = "select published, remaining from penstock.publish_slice('job')"
        with (
            psycopg.connect(database_url, autocommit=True) as other,
            ThreadPoolExecutor() as threads,
        ):
            with writer.connection.transaction():
                first = writer.connection.execute(publish_slice).fetchone()
                waiting = threads.submit(other.execute, publish_slice)
                wait_until_blocked(database_url, 1, waiting)
            second = waiting.result().fetchone()

        assert (first, second) == ((10, 15), (20, 5))
        assert numbers(store) == list(range(20))

    def test_two_go_on_at_once(self, writer: Writer, store: Store, database_url: str) -> None:
        fail_at_the_last_slice(writer, stage_numbers(writer, 95), database_url)

        def go_on(_: int) -> Published:
            with psycopg.connect(database_url, autocommit=True) as connection:
                return Writer(connection).publish(source="job", rows_per_transaction=SLICE)

        with ThreadPoolExecutor() as threads:
            results = list(threads.map(go_on, range(2)))

        assert [one.count for one in results] == [95, 95]
        assert numbers(store) == list(range(95))


class TestIdsOfTheirOwn:
    def test_one_that_exists_stops_all_of_it_before_the_first_slice(
        self, writer: Writer, store: Store
    ) -> None:
        id = str(uuid4())
        store.write_message("a-1", "Before", id=id)
        rows = [(str(uuid4()), "b-1", "T", "{}") for _ in range(35)]
        staged = writer.stage(IDENTIFIED, *rows, (id, "a-1", "T", "{}"))

        with pytest.raises(DuplicateMessageId, match=id):
            writer.publish(staged, source="job", rows_per_transaction=SLICE, own_ids=True)

        assert numbers_of_messages(store) == 1
        assert writer.count("penstock.deliveries") == 0

    def test_one_that_is_there_twice_too(self, writer: Writer, store: Store) -> None:
        id = str(uuid4())
        rows = [(str(uuid4()), "b-1", "T", "{}") for _ in range(35)]
        staged = writer.stage(IDENTIFIED, (id, "a-1", "T", "{}"), *rows, (id, "a-1", "T", "{}"))

        with pytest.raises(DuplicateMessageId, match=id):
            writer.publish(staged, source="job", rows_per_transaction=SLICE, own_ids=True)

        assert numbers_of_messages(store) == 0
