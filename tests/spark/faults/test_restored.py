"""A checkpoint from after the backup, on a log that was restored and has grown past it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import penstock
from penstock import Store
from penstock.errors import LogChanged, OffsetBeyondEnd
from penstock.spark.connections import find_database
from penstock.spark.options import read_options
from penstock.spark.read.columns import default_schema
from penstock.spark.read.readers import StreamReader
from tests.database.test_backup import dump_and_restore
from tests.spark.faults.jobs import numbers_in, start_copying

COPIES = "copy"


def write_orders(store: Store, first: int, last: int) -> None:
    for number in range(first, last + 1):
        store.write_message(f"order-{number % 3}", "Placed", {"number": number})


def copy_now(spark: SparkSession, url: str, to: str, checkpoint: Path, **options: Any) -> None:
    """Copy what there is, to a database that is not restored."""
    start_copying(
        spark, url, str(checkpoint), to=to, available_now=True, **options
    ).awaitTermination()


@pytest.fixture
def output(new_database: Callable[[str], str]) -> str:
    """Where the query writes to: not the database that is restored."""
    return new_database("penstock")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


@pytest.fixture
def restored(
    spark: SparkSession,
    new_database: Callable[[str], str],
    output: str,
    checkpoint: Path,
    tmp_path: Path,
) -> str:
    """Dump 10 orders, copy 60, restore the 10, and write until there are 70 again."""
    original, restored = new_database("penstock"), new_database("empty")
    with penstock.connect(original) as store:
        write_orders(store, 1, 10)
        dump_and_restore(original, restored, tmp_path / "dump")
        write_orders(store, 11, 60)
    copy_now(spark, original, output, checkpoint)
    with penstock.connect(restored) as store:
        write_orders(store, 11, 70)
    return restored


def test_a_query_says_that_the_log_was_restored(
    spark: SparkSession, restored: str, output: str, checkpoint: Path
) -> None:
    with pytest.raises(StreamingQueryException, match="was read at position 60, is not there"):
        copy_now(spark, restored, output, checkpoint)

    assert numbers_in(output, COPIES) == list(range(1, 61))


def test_it_goes_on_where_the_backup_ended_if_it_is_given_the_position(
    spark: SparkSession, restored: str, output: str, checkpoint: Path
) -> None:
    copy_now(spark, restored, output, checkpoint, onRestore="10")

    assert numbers_in(output, COPIES) == [*range(1, 61), *range(11, 71)]


class TestOffsets:
    """The reader alone, as Spark has it."""

    def test_an_offset_has_the_message_and_the_incarnation(
        self, store: Store, database_url: str
    ) -> None:
        write_orders(store, 1, 3)
        [*_, last] = store.read_category("order")

        with reading(database_url, category="order") as one:
            offset = one.latestOffset(one.initialOffset(), ReadAllAvailable())

            assert offset["position"] == 3
            assert offset["id"] == str(last.id)
            assert offset["log"] == incarnation(database_url)
            assert one.latestOffset(offset, ReadAllAvailable()) == offset

    @pytest.mark.parametrize(
        "target",
        [{"category": "order"}, {"stream": "order-1"}, {"category": "$all"}],
        ids=["category", "stream", "all"],
    )
    @pytest.mark.parametrize("written", [1, 9])
    def test_a_log_that_changes_under_a_query_is_noticed(
        self, store: Store, database_url: str, target: dict[str, str], written: int
    ) -> None:
        fill(store, 5)
        with reading(database_url, **target) as one:
            offset = one.latestOffset(one.initialOffset(), ReadAllAvailable())
            empty(database_url)
            fill(store, written)

            with (
                pytest.raises((LogChanged, OffsetBeyondEnd)),
                reading(database_url, **target) as again,
            ):
                again.latestOffset(offset, ReadAllAvailable())
            if written == 9:
                with pytest.raises(LogChanged):
                    one.latestOffset(offset, ReadAllAvailable())

    def test_an_offset_where_no_message_is_goes_by_the_incarnation(
        self, store: Store, database_url: str
    ) -> None:
        fill(store, 5)
        with psycopg.connect(database_url) as connection:
            connection.execute("delete from message_store.messages where global_position = 3")
        with reading(database_url, category="order", after="3") as one:
            offset = one.initialOffset()
            before = one.latestOffset(offset, ReadAllAvailable())["position"]
        empty(database_url)
        fill(store, 9)

        with reading(database_url, category="order") as again, pytest.raises(LogChanged):
            again.latestOffset(offset, ReadAllAvailable())

        assert (before, "id" in offset) == (5, False)

    def test_a_batch_that_was_planned_before_is_not_read_from_another_log(
        self, store: Store, database_url: str
    ) -> None:
        fill(store, 5)
        with reading(database_url, category="order") as one:
            start = one.initialOffset()
            end = one.latestOffset(start, ReadAllAvailable())
        empty(database_url)
        fill(store, 9)

        with reading(database_url, category="order") as again, pytest.raises(LogChanged):
            again.partitions(start, end)
        with reading(database_url, category="order", onRestore="0") as again:
            assert again.partitions(start, end) == []
            moved = again.latestOffset(end, ReadAllAvailable())
            assert moved["position"] == 0
            assert again.latestOffset(moved, ReadAllAvailable())["position"] == 9
        with reading(database_url, category="order", failOnDataLoss="false") as again:
            assert len(again.partitions(start, end)) == 1
            moved = again.latestOffset(end, ReadAllAvailable())
            assert moved["position"] == 5
            assert again.latestOffset(moved, ReadAllAvailable())["position"] == 9

    @pytest.mark.parametrize("target", ["order", "order-1"])
    def test_a_message_that_retention_removed_is_no_other_log(
        self, store: Store, database_url: str, target: str
    ) -> None:
        fill(store, 5)
        kind = "stream" if "-" in target else "category"
        with reading(database_url, **{kind: target}) as one:
            offset = one.latestOffset(one.initialOffset(), ReadMaxRows(2))
        store.admin.retain(target, keep_count=1)

        with reading(database_url, **{kind: target}) as again:
            assert again.latestOffset(offset, ReadAllAvailable())["position"] in (4, 5)

    def test_an_offset_of_0_1_is_a_position_alone(self, store: Store, database_url: str) -> None:
        fill(store, 5)

        with reading(database_url, category="order") as one:
            found = one.latestOffset({"position": 2}, ReadAllAvailable())

            assert found["position"] == 5
            [part] = one.partitions({"position": 2}, {"position": 4})
            assert sum(batch.num_rows for batch in one.read(part)) == 2

    def test_a_query_that_has_read_nothing_may_begin_on_any_log(
        self, store: Store, database_url: str
    ) -> None:
        with reading(database_url, category="order", after="latest") as one:
            offset = one.initialOffset()
        empty(database_url)
        fill(store, 2)

        with reading(database_url, category="order") as again:
            assert again.latestOffset(offset, ReadAllAvailable())["position"] == 2


@contextmanager
def reading(url: str, **options: str) -> Iterator[StreamReader]:
    one = StreamReader(
        find_database(url), read_options({"url": url, **options}), default_schema(None)
    )
    try:
        yield one
    finally:
        one.stop()


def fill(store: Store, count: int) -> None:
    for _ in range(count):
        store.write_message("order-1", "Placed")


def empty(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("truncate message_store.messages restart identity")


def incarnation(url: str) -> str:
    with psycopg.connect(url) as connection:
        row = connection.execute("select incarnation::text from penstock.log_identity()").fetchone()
        assert row is not None
        return str(row[0])
