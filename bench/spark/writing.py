"""Writing a frame: ours, atomic and exactly once, beside plain JDBC appends that are neither."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import uuid4

import psycopg
from psycopg import sql
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bench.measuring import Contender, measure
from bench.results import Comparison, ratio
from bench.spark.place import FETCH, Place

DATABASE = "spark_writing"
WRITERS = 2
TITLE = f"Spark writes, {WRITERS} writers"
OURS = (
    "{messages:,} messages, ten to a stream, from a frame of two partitions. Ours stages them, "
    "finds each stream's next position, and publishes all in one transaction that also records "
    "the delivery."
)
THEIRS = (
    "JDBC inserts rows that have their positions already, in a transaction for each partition: "
    "if one fails, half is there, and a retry doubles it. Its table has the columns and indexes "
    "of message_store.messages and ids in the order of time, as ours, but no triggers. Its batches "
    f"are {FETCH:,} rows, and the driver's reWriteBatchedInserts, which its documentation advises, "
    "makes one INSERT of many. All tables are empty before each write."
)
_PLAIN = """
create table public.plain (like message_store.messages including all);
alter table public.plain alter column id set default uuidv7();
"""


def compare(place: Place, messages: int, rounds: int) -> Comparison:
    """Measure rows per second."""
    url = place.server.ours(DATABASE, 0)
    frame = sales(place.spark, messages)
    writes: dict[str, Callable[[], None]] = {"ours": partial(_ours, place, frame)}
    if place.has_jdbc:
        writes["JDBC, reWriteBatchedInserts"] = partial(_theirs, place, frame)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_PLAIN)
        contenders = [
            Contender(name, partial(_rows_per_second, connection, messages, write))
            for name, write in writes.items()
        ]
        ours, *theirs = measure(TITLE, "rows/s", contenders, rounds).values()
    place.server.drop(DATABASE)
    ratios = [ratio(ours, one, at_least=1) for one in theirs]
    notes = [OURS.format(messages=messages), THEIRS, *place.notes]
    return Comparison(TITLE, [ours, *theirs], ratios, notes, f"{messages:,} messages")


def sales(spark: SparkSession, messages: int) -> DataFrame:
    """Return sales that Spark makes up as it goes, with their positions in their streams."""
    return spark.range(0, messages, 1, WRITERS).select(
        f.expr("concat('sale-', id div 10)").alias("stream_name"),
        f.expr("id % 10").alias("position"),
        f.lit("Sold").alias("type"),
        f.expr(
            """concat('{"amount": ', id % 1000, '.5, "currency": "EUR", "customer": "c', """
            """id % 10000, '"}')"""
        ).alias("data"),
        f.lit('{"correlation_id": "0b8b6f1c"}').alias("metadata"),
    )


def _ours(place: Place, frame: DataFrame) -> None:
    place.write(frame.drop("position"), DATABASE).option("delivery", str(uuid4())).save()


def _theirs(place: Place, frame: DataFrame) -> None:
    place.jdbc_append(frame, DATABASE, "public.plain")


def _rows_per_second(
    connection: psycopg.Connection[Any], messages: int, write: Callable[[], None]
) -> float:
    connection.execute("truncate message_store.messages, public.plain")
    connection.execute("checkpoint")
    began = time.perf_counter()
    write()
    seconds = time.perf_counter() - began
    counts = sql.SQL(
        "select (select count(*) from message_store.messages) + (select count(*) from public.plain)"
    )
    assert connection.execute(counts).fetchone() == (messages,)
    return messages / seconds
