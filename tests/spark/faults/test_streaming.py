"""Streams at their limits: below retention, asked for some rows or for what is there, and idle."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.streaming.query import StreamingQuery

from penstock import Store
from penstock.errors import MessagesRemoved, OffsetBeyondEnd
from penstock.spark.connections import find_database
from penstock.spark.options import read_options
from penstock.spark.read.columns import default_schema
from penstock.spark.read.readers import StreamReader
from tests.spark.faults.jobs import numbers_in, start_copying, write_orders


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")


def reader(url: str, **options: str) -> StreamReader:
    """Return a reader as Spark has it."""
    found = read_options({"url": url, **options})
    return StreamReader(find_database(url), found, default_schema(None))


class TestBelowRetention:
    @pytest.fixture
    def removed(
        self, spark: SparkSession, store: Store, database_url: str, checkpoint: str
    ) -> list[int]:
        """Copy six orders, and remove three of the next six: what could be copied."""
        write_orders(store)
        copy_now(spark, database_url, checkpoint)
        orders = write_orders(store)
        store.admin.retain("order", keep_count=3)
        return orders[:6] + orders[-3:]

    def test_a_query_says_so(
        self, spark: SparkSession, database_url: str, checkpoint: str, removed: list[int]
    ) -> None:
        with pytest.raises(StreamingQueryException, match="messages of category order after"):
            copy_now(spark, database_url, checkpoint)

        assert numbers_in(database_url, "copy") == removed[:6]

    def test_it_goes_on_if_asked_to(
        self, spark: SparkSession, database_url: str, checkpoint: str, removed: list[int]
    ) -> None:
        copy_now(spark, database_url, checkpoint, failOnDataLoss="false")

        assert numbers_in(database_url, "copy") == removed

    @pytest.mark.parametrize(("kind", "target"), [("category", "order"), ("stream", "order-1")])
    def test_what_is_removed_after_it_was_planned_is_missed_no_less(
        self, store: Store, database_url: str, kind: str, target: str
    ) -> None:
        for _ in range(9):
            store.write_message("order-1", "Placed")
        one = reader(database_url, **{kind: target})
        [part] = one.partitions({"position": 2}, {"position": 5})

        store.admin.retain(target, keep_count=1)

        with pytest.raises(MessagesRemoved):
            list(one.read(part))
        one.stop()


class TestBeyondTheEnd:
    """A checkpoint of another database, or of this one before it was restored."""

    @pytest.fixture
    def emptied(
        self, spark: SparkSession, store: Store, database_url: str, checkpoint: str
    ) -> Store:
        """Copy some orders, and take the log back to where it was before most of them."""
        orders = write_orders(store)
        copy_now(spark, database_url, checkpoint)
        with psycopg.connect(database_url) as connection:
            connection.execute(
                "delete from message_store.messages where global_position > %s", (orders[1],)
            )
            connection.execute(
                "select setval('message_store.messages_global_position_seq', %s)", (orders[1],)
            )
        return store

    def test_a_query_says_so(
        self, spark: SparkSession, emptied: Store, database_url: str, checkpoint: str
    ) -> None:
        with pytest.raises(StreamingQueryException, match="and there is nothing beyond 2: this is"):
            copy_now(spark, database_url, checkpoint)

    def test_it_goes_on_from_the_end_if_asked_to(
        self, spark: SparkSession, emptied: Store, database_url: str, checkpoint: str
    ) -> None:
        copy_now(spark, database_url, checkpoint, failOnDataLoss="false")
        orders = write_orders(emptied)

        copy_now(spark, database_url, checkpoint, failOnDataLoss="false")

        assert numbers_in(database_url, "copy") == orders[2:]

    def test_a_batch_that_was_planned_there_is_not_taken_for_empty(self, database_url: str) -> None:
        one = reader(database_url, category="order")

        with pytest.raises(OffsetBeyondEnd):
            one.partitions({"position": 2}, {"position": 5})
        one.stop()

    def test_a_stream_is_held_against_its_own_end(self, store: Store, database_url: str) -> None:
        for number in (1, 1, 2, 2, 2):
            store.write_message(f"order-{number}", "Placed")
        one = reader(database_url, stream="order-1")

        with pytest.raises(OffsetBeyondEnd):
            one.latestOffset({"position": 2}, ReadAllAvailable())
        one.stop()

    def test_a_category_that_ends_before_the_log_is_no_reason(
        self, store: Store, database_url: str
    ) -> None:
        store.write_message("order-1", "Placed")
        store.write_message("other-1", "Placed")
        one = reader(database_url, category="order")

        assert one.latestOffset({"position": 2}, ReadAllAvailable()) == {"position": 2}
        one.stop()


def copy_now(spark: SparkSession, url: str, checkpoint: str, **options: Any) -> StreamingQuery:
    query = start_copying(spark, url, checkpoint, available_now=True, **options)
    query.awaitTermination()
    return query


def test_a_batch_has_at_most_so_many_rows(
    spark: SparkSession, store: Store, database_url: str, checkpoint: str
) -> None:
    orders = write_orders(store, 10)

    query = copy_now(spark, database_url, checkpoint, maxRowsPerBatch=4)

    assert [one["numInputRows"] for one in query.recentProgress] == [4, 4, 2]
    assert numbers_in(database_url, "copy") == orders


def test_what_is_available_now_ends_where_it_began(
    spark: SparkSession, store: Store, database_url: str, checkpoint: str
) -> None:
    orders, seen = write_orders(store), list[int]()

    def see(batch: DataFrame, number: int) -> None:
        seen.extend(row.global_position for row in batch.collect())
        write_orders(store, 1)

    orders_as_they_come(spark, database_url, maxRowsPerBatch=2).writeStream.foreachBatch(
        see
    ).trigger(availableNow=True).option("checkpointLocation", checkpoint).start().awaitTermination()

    assert seen == orders


def orders_as_they_come(spark: SparkSession, url: str, **options: Any) -> DataFrame:
    read = spark.readStream.format("penstock").options(url=url, category="order", **options)
    return read.schema("global_position long").load()


def test_an_idle_query_asks_the_database_a_few_times_a_second(
    spark: SparkSession, store: Store, database_url: str, checkpoint: str
) -> None:
    write_orders(store)
    query = start_copying(spark, database_url, checkpoint)
    query.processAllAvailable()

    rates = rates_of_transactions(query, database_url)
    assert any(1 < one < 10 for one in rates), "Spark asks 80 times a second"
    query.stop()


def rates_of_transactions(query: StreamingQuery, url: str) -> Iterator[float]:
    """Yield how many transactions a second the database has had while the query was left alone.

    The first may include earlier ones, which backends have not reported until then.
    """
    for _ in range(10):
        before, began = transactions(url), time.monotonic()
        query.awaitTermination(3)
        yield (transactions(url) - before) / (time.monotonic() - began)


def transactions(url: str) -> int:
    """Return how many transactions the database has seen; backends report them once a second."""
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(
            "select xact_commit + xact_rollback from pg_stat_database"
            " where datname = current_database()"
        ).fetchone()
        assert row is not None
        return int(row[0])
