"""What the drivers of these tests do: write numbers, and copy messages as they come."""

from __future__ import annotations

from typing import Any

import psycopg
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

import penstock
from penstock import Store
from penstock.pipeline import Delivery, Pipeline, Runner
from tests.spark.faults.gates import Passing, failing_at_first, standing_at

NUMBERS = 8


def write_numbers(
    spark: SparkSession,
    url: str,
    category: str = "number",
    *,
    partitions: int = 2,
    delivery: str | None = None,
    gate: tuple[str, int] | None = None,
    fails: bool = False,
) -> None:
    """Write the numbers from 0; the last partition may stand at a gate, or fail at first."""
    numbers = _passing(spark.range(0, NUMBERS, 1, partitions), partitions - 1, gate, fails)
    options = {"url": url} | ({} if delivery is None else {"delivery": delivery})
    numbers.selectExpr(
        f"concat('{category}-', id % 3) as stream_name",
        "'Numbered' as type",
        "named_struct('n', id) as data",
        "id as ordinal",
    ).write.format("penstock").options(**options).mode("append").save()


def write_attempt(spark: SparkSession, url: str, attempt: str, *, atomic: bool = False) -> None:
    """Write 40 numbers in four transactions, the later half to another category, in any order."""
    numbers = spark.range(0, 40, 1, 2).selectExpr(
        "concat(if(id < 20, 'early-', 'late-'), id % 3) as stream_name",
        f"'{attempt}' as type",
        "named_struct('n', id) as data",
        "id as ordinal",
    )
    several = {"atomic": "true"} if atomic else {"rowsPerTransaction": "10"}
    numbers.write.format("penstock").options(url=url, delivery="attempt", **several).mode(
        "append"
    ).save()


def types_in(url: str, *categories: str) -> set[str]:
    """Return the types of the messages of some categories."""
    with penstock.connect(url) as store:
        return {one.type for name in categories for one in store.read_category(name)}


def copy_messages(
    spark: SparkSession, url: str, source: str, target: str, *, gate: tuple[str, int] | None = None
) -> None:
    """Copy the positions of a category's messages, in two tasks if there are 20,000 of them."""
    read = spark.read.format("penstock").options(url=url, category=source, partitions=2)
    found = read.schema("global_position long").load()
    _as_copies(_passing(found, 1, gate), target).write.format("penstock").option("url", url).mode(
        "append"
    ).save()


def start_copying(
    spark: SparkSession,
    url: str,
    checkpoint: str,
    *,
    source: str = "order",
    target: str = "copy",
    to: str | None = None,
    available_now: bool = False,
    rows_per_transaction: int | None = None,
    **options: Any,
) -> StreamingQuery:
    """Copy the positions of a category's messages as they come."""
    read = spark.readStream.format("penstock").options(url=url, category=source, **options)
    writer = (
        _as_copies(read.schema("global_position long").load(), target)
        .writeStream.format("penstock")
        .options(url=to or url, checkpointLocation=checkpoint)
    )
    if rows_per_transaction is not None:
        writer = writer.option("rowsPerTransaction", rows_per_transaction)
    return (writer.trigger(availableNow=True) if available_now else writer).start()


def run_pipeline(spark: SparkSession, url: str, *, gate: tuple[str, int] | None = None) -> None:
    """Bill orders and add the bills up, with a pipeline; its second task may stand at a gate."""
    pipe = Pipeline("shop")
    pipe.schema("order")

    @pipe.stream(inputs="order", output="bill")
    def bill(order: DataFrame) -> DataFrame:
        return _passing(order, 1, gate).selectExpr(
            "id",
            "global_position",
            "'Billed' as type",
            "named_struct('n', global_position) as data",
        )

    @pipe.sink(inputs="bill")
    def totals(bill: DataFrame, delivery: Delivery) -> None:
        digits = bill.selectExpr(
            "cast(get_json_object(data, '$.n') as long) as n", "n % 10 as digit"
        )
        sums = digits.groupBy("digit").agg(f.sum("n").alias("n"))
        delivery.upsert(sums, "totals", key="digit", add=["n"])

    with penstock.connect(url) as store:
        for one in Runner(pipe, store, spark).run_until_idle().progress.values():
            if one.error is not None:
                raise one.error


def numbers_in(url: str, category: str) -> list[int]:
    """Return the numbers that were published, in the order of the log."""
    with psycopg.connect(url, autocommit=True) as connection:
        rows = connection.execute(
            "select (data->>'n')::bigint from message_store.messages"
            " where message_store.category(stream_name) = %s order by global_position",
            (category,),
        )
        return [number for (number,) in rows]


def write_orders(store: Store, count: int = 6) -> list[int]:
    """Write some orders and return their global positions."""
    for number in range(count):
        store.write_message(f"order-{number % 3}", "Placed", {"number": number})
    return [one.global_position for one in store.read_category("order")]


def _as_copies(messages: DataFrame, target: str) -> DataFrame:
    return messages.selectExpr(
        f"'{target}-1' as stream_name",
        "'Copied' as type",
        "named_struct('n', global_position) as data",
        "global_position as ordinal",
    )


def _passing(
    rows: DataFrame, partition: int, gate: tuple[str, int] | None, fails: bool = False
) -> DataFrame:
    passing: list[Passing] = [standing_at(*gate, partition)] if gate else []
    if fails:
        passing.append(failing_at_first(partition))
    for one in passing:
        rows = rows.mapInArrow(one, rows.schema)
    return rows
