"""The frames of a step: its inputs and tables, each between two numbers of its queue.

A few messages are read here, on the driver, as Arrow: far quicker than to plan a distributed
read. Many are read by the executors, through the data source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from penstock.message import names
from penstock.spark.connections import DatabaseRef
from penstock.spark.read.columns import read_plan
from penstock.spark.read.driver_read import read_table
from penstock.spark.read.splits import Split
from penstock.spark.target import Target

#: so many messages the driver reads by itself
DRIVER_ROWS = 20_000

Connection = psycopg.Connection[Any]


@dataclass
class Slice:
    """The messages of a queue between two numbers, wherever they are read."""

    place: DatabaseRef
    connection: Connection
    target: Target
    schema: StructType
    after: int
    until: int
    count: int
    #: up to here the driver reads by itself
    driver_rows: int = DRIVER_ROWS
    #: it has no messages, and Spark is not to find that out before it has run
    opaque: bool = False

    @property
    def is_small(self) -> bool:
        """Whether the driver reads it by itself."""
        return self.count <= self.driver_rows

    @cached_property
    def table(self) -> pa.Table:
        """The messages as an Arrow table, read on the driver, in their order."""
        columns = read_plan(self.schema)
        piece = Split(self.after, self.until)
        return read_table(self.connection, self.target, columns, piece).sort_by("global_position")

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return the messages as a frame."""
        if self.opaque:
            return spark.createDataFrame(spark.sparkContext.parallelize([], 1), self.schema)
        if self.is_small:
            return spark.createDataFrame(self.table, schema=self.schema)
        reader = spark.read.format("penstock").schema(self.schema).options(
            url=self.place.settings.conninfo(), after=self.after, until=self.until,
            partitions=2 * spark.sparkContext.defaultParallelism,
        )  # fmt: skip
        if self.target.types:
            reader = reader.option("types", _json(self.target.types))
        # as they are in the log: the database gives a part's messages in whatever order is quickest
        return (
            reader.option(*queue_option(self.target)).load().sortWithinPartitions("global_position")
        )

    def check(self, spark: SparkSession) -> None:
        """Read all of it, or raise what is in the way."""
        if self.is_small:
            _ = self.table
        else:
            self.frame(spark).write.format("noop").mode("overwrite").save()

    def nothing(self) -> Slice:
        """Return the same without any message: so a function can be tried on its tables alone."""
        return replace(self, until=self.after, count=0, opaque=True)


def queue_target(queue: str, types: Sequence[str] = ()) -> Target:
    """Return the target that a queue is: a category, or a stream."""
    if names.is_category(queue):
        return Target(category=queue, types=tuple(types))
    return Target(stream=queue, types=tuple(types))


def queue_option(target: Target) -> tuple[str, str]:
    """Return a target as an option of the data source."""
    return ("stream", target.stream) if target.stream else ("category", target.category or "")


def count_up_to(connection: Connection, target: Target, after: int, until: int, most: int) -> int:
    """Count the messages of a range, but no further than `most`."""
    page = sql.SQL("select 1 {rows} limit {most}").format(rows=target.rows(after, until), most=most)
    row = connection.execute(sql.SQL("select count(*) from ({}) p").format(page)).fetchone()
    return 0 if row is None else int(row[0])


def numbers_after(
    connection: Connection, target: Target, after: int, until: int, most: int
) -> list[int]:
    """Return the numbers of the first messages of a range, at most so many."""
    if most < 1:
        return []
    query = sql.SQL("select {axis} {rows} order by {order} limit {most}").format(
        axis=target.axis, rows=target.rows(after, until), order=target.order, most=most
    )
    return [int(row[0]) for row in connection.execute(query).fetchall()]


def first_position(connection: Connection, target: Target, after: int, until: int) -> int:
    """Return the global position of the first message of a range that has one."""
    query = sql.SQL("select min(m.global_position) {}").format(target.rows(after, until))
    row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0])


def latest_per_stream(frame: DataFrame) -> DataFrame:
    """Return the last message of each stream."""
    newest = Window.partitionBy("stream_name").orderBy(f.col("position").desc())
    ranked = frame.withColumn("_rank", f.row_number().over(newest))
    return ranked.where("_rank = 1").drop("_rank")


def _json(values: Sequence[str]) -> str:
    import msgspec

    return msgspec.json.encode(list(values)).decode()
