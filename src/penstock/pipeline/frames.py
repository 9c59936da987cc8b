"""The messages of a queue between two positions: as a frame, as an Arrow table, or counted.

A queue is a category or a stream of the log. Up to `DRIVER_ROWS` messages are read on the driver,
as Arrow, which is far quicker than planning a distributed read. The executors read more than that,
through the data source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import msgspec
import pyarrow as pa
from psycopg import sql
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from penstock.database.operation import Operation, call, only_value
from penstock.message import names
from penstock.pipeline.connection import RunConnection
from penstock.spark.connections import DatabaseRef
from penstock.spark.read.columns import read_plan
from penstock.spark.read.driver_read import read_table
from penstock.spark.read.splits import Split
from penstock.spark.target import Target

#: the most messages that the driver reads itself
DRIVER_ROWS = 20_000

# Messages of a queue that no stream, sink or projection of the pipeline has published.
_FROM_ELSEWHERE = """
select m.global_position {rows} and (
  m.metadata ->> 'pipeline' is distinct from {pipeline}
  or m.metadata ->> 'processor' in (
    select p.processor from penstock.processors p
    where p.pipeline = {pipeline} and p.kind = 'source'))
limit 1
"""


@dataclass
class Slice:
    """The messages of a queue between two positions, wherever they are read."""

    database: DatabaseRef
    connection: RunConnection
    target: Target
    schema: StructType
    after: int
    until: int
    count: int
    #: up to this many messages the driver reads itself
    driver_rows: int = DRIVER_ROWS
    #: only the last message of each stream counts
    latest: bool = False
    #: it has no messages, and Spark's optimizer must not see that
    opaque: bool = False

    @property
    def is_small(self) -> bool:
        """Whether the driver reads it."""
        return self.count <= self.driver_rows

    @cached_property
    def table(self) -> pa.Table:
        """The messages as an Arrow table, read on the driver, in the order of the log."""
        columns, split = read_plan(self.schema), Split(self.after, self.until)
        found = read_table(self.connection.raw, self.target, columns, split)
        return found.sort_by("global_position")

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return the messages as a frame."""
        if not self.latest:
            return self._all(spark)
        newest = Window.partitionBy("stream_name").orderBy(f.col("position").desc())
        ranked = self._all(spark).withColumn("_rank", f.row_number().over(newest))
        return ranked.where("_rank = 1").drop("_rank")

    def check(self, spark: SparkSession) -> None:
        """Read all of it, or raise the error that prevents it."""
        if self.is_small:
            _ = self.table
        else:
            self._all(spark).write.format("noop").mode("overwrite").save()

    def empty(self) -> Slice:
        """Return the same slice without messages, to run a function on its tables alone."""
        return replace(self, until=self.after, count=0, opaque=True)

    def _all(self, spark: SparkSession) -> DataFrame:
        if self.opaque:
            return spark.createDataFrame(spark.sparkContext.parallelize([], 1), self.schema)
        if self.is_small:
            return spark.createDataFrame(self.table, schema=self.schema)
        reader = spark.read.format("penstock").schema(self.schema).options(
            url=self.database.settings.conninfo(), after=self.after, until=self.until,
            partitions=2 * spark.sparkContext.defaultParallelism,
        )  # fmt: skip
        target = self.target
        if target.types:
            reader = reader.option("types", msgspec.json.encode(target.types).decode())
        queue = ("stream", target.stream) if target.stream else ("category", target.category)
        # in the order of the log: the database returns a split in whatever order is quickest
        return reader.option(*queue).load().sortWithinPartitions("global_position")


def queue_target(queue: str, types: Sequence[str] = ()) -> Target:
    """Return the target that a queue is: a category, or a stream."""
    if names.is_category(queue):
        return Target(category=queue, types=tuple(types))
    return Target(stream=queue, types=tuple(types))


# Operations on a range. Their SQL has literals, as that of a read has: see `Target`.


def count_up_to(target: Target, after: int, until: int, most: int) -> Operation[int]:
    """Count the messages of a range, but no further than `most`."""
    counted = sql.SQL("select count(*) from (select 1 {rows} limit {most}) p").format(
        rows=target.rows(after, until), most=most
    )
    return call("count_messages", counted, None, only_value)


def positions_after(target: Target, after: int, until: int, most: int) -> Operation[list[int]]:
    """Return the positions of the first messages of a range, at most so many."""
    query = sql.SQL("select {axis} {rows} order by {order} limit {most}").format(
        axis=target.axis, rows=target.rows(after, until), order=target.order, most=max(most, 0)
    )
    return call("positions", query, None, lambda rows: [int(row[0]) for row in rows])


def first_message(target: Target, after: int, until: int) -> Operation[tuple[int | None, str]]:
    """Return the global position of the first message of a range, and all that it says as text."""
    query = sql.SQL(
        "select m.global_position, concat_ws(' ', m.stream_name, m.type, m.data, m.metadata) {}"
        " order by {} limit 1"
    ).format(target.rows(after, until), target.order)
    return call("first_message", query, None, lambda rows: rows[0] if rows else (None, ""))


def message_from_elsewhere(target: Target, until: int, pipeline: str) -> Operation[int | None]:
    """Return the position of a message that this pipeline would not publish again, if any."""
    rows = target.rows(target.before_first, until)
    query = sql.SQL(_FROM_ELSEWHERE).format(rows=rows, pipeline=pipeline)
    return call("message_from_elsewhere", query, None, lambda rows: rows[0][0] if rows else None)
