"""The messages of a queue between two positions: as a frame, as an Arrow table, or counted.

A queue is a category or a stream of the log. Up to `DRIVER_ROWS` messages are read on the driver,
as Arrow, which is far quicker than planning a distributed read. The executors read more than that,
through the data source.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import msgspec
import pyarrow as pa
from psycopg import sql
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from penstock.database.operation import Operation, Row, call
from penstock.database.replica import flush_to, read_point
from penstock.errors import ReplicaUnavailable
from penstock.message import names
from penstock.pipeline.connection import RunConnection
from penstock.spark.connections import DatabaseRef, connected_at
from penstock.spark.options import replica_options
from penstock.spark.read.archive_rows import archive_location, archived_messages, find_archive
from penstock.spark.read.columns import read_plan
from penstock.spark.read.driver_read import read_table
from penstock.spark.read.splits import Split
from penstock.spark.target import Target

log = logging.getLogger(__name__)
#: the most messages that the driver reads itself
DRIVER_ROWS = 20_000
#: up to so many messages for each of Spark's cores, each core has one task: to start one takes as
#: long as to read some ten thousand messages
TASK_ROWS = 50_000

_TEXTS = ["global_position", "stream_name", "type", "data", "metadata"]
_FIRST = """
select f.global_position, f.text, {location}
from (select 1) one
left join lateral (
  select m.global_position, concat_ws(' ', m.stream_name, m.type, m.data, m.metadata) as text
  {rows} order by {order} limit 1) f on true
"""
# Messages of a queue that no stream, sink or projection of the pipeline has published.
_FROM_ELSEWHERE = """
with sources as materialized (
  select p.processor from penstock.processors p
  where p.pipeline = {pipeline} and p.kind = 'source'
)
select (
    select m.global_position {rows} and (
      m.metadata ->> 'pipeline' is distinct from {pipeline}
      or m.metadata ->> 'processor' in (select s.processor from sources s))
    limit 1
  ), array(select s.processor from sources s), {location}
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
        return self._read_table().sort_by("global_position")

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

    def _read_table(self) -> pa.Table:
        columns, split = read_plan(self.schema), Split(self.after, self.until)
        if replica := self.database.replica:
            point = self.connection.run(read_point())
            self.connection.run(flush_to(point))
            try:
                with connected_at(replica, point) as connection:
                    return read_table(connection, self.target, columns, split)
            except ReplicaUnavailable as error:
                if not self.database.settings.replica_fallback:
                    raise
                log.warning("reading the primary: %s", error)
        return read_table(self.connection.raw, self.target, columns, split)

    def _all(self, spark: SparkSession) -> DataFrame:
        if self.opaque:
            return spark.createDataFrame(spark.sparkContext.parallelize([], 1), self.schema)
        if self.is_small:
            return spark.createDataFrame(self.table, schema=self.schema)
        cores = spark.sparkContext.defaultParallelism
        reader = spark.read.format("penstock").schema(self.schema).options(
            url=self.database.settings.conninfo(), after=self.after, until=self.until,
            partitions=cores if self.count <= TASK_ROWS * cores else 2 * cores,
            **replica_options(self.database.settings),
        )  # fmt: skip
        target = self.target
        if target.types:
            reader = reader.option("types", msgspec.json.encode(target.types).decode())
        if target.lake_options and self._is_archived():  # Spark logs options where it logs all
            options = msgspec.json.encode(target.lake_options).decode()
            reader = reader.option("lakeOptions", options)
        queue = ("stream", target.stream) if target.stream else ("category", target.category)
        # in the order of the log: the database returns a split in whatever order is quickest
        return reader.option(*queue).load().sortWithinPartitions("global_position")

    def _is_archived(self) -> bool:
        found = self.connection.run(find_archive(self.target, self.after, self.until))
        return found is not None


def queue_target(
    queue: str, types: Sequence[str] = (), lake_options: Mapping[str, str] | None = None
) -> Target:
    """Return the target that a queue is: a category, or a stream."""
    chosen, options = tuple(types), dict(lake_options or {})
    if names.is_category(queue):
        return Target(category=queue, types=chosen, lake_options=options)
    return Target(stream=queue, types=chosen, lake_options=options)


# Operations on a range. Their SQL has literals, as that of a read has: see `Target`.


def first_message(target: Target, after: int, until: int) -> Operation[tuple[int | None, str]]:
    """Return the global position of the first message of a range, and all that it says as text."""
    query = sql.SQL(_FIRST).format(
        rows=target.rows(after, until),
        order=target.order,
        location=archive_location(target, after, until),
    )

    def decode(rows: list[Row]) -> tuple[int | None, str]:
        position, text, location = rows[0]
        if location is not None:
            for batch in archived_messages(target, after, until, location, _TEXTS):
                found = batch.slice(0, 1).to_pylist()[0]
                if position is None or found["global_position"] < position:
                    position = found["global_position"]
                    text = " ".join(found[name] for name in _TEXTS[1:] if found[name] is not None)
        return position, text or ""

    return call("first_message", query, None, decode)


def message_from_elsewhere(target: Target, until: int, pipeline: str) -> Operation[int | None]:
    """Return the position of a message that this pipeline would not publish again, if any."""
    first = target.before_first
    query = sql.SQL(_FROM_ELSEWHERE).format(
        rows=target.rows(first, until),
        pipeline=pipeline,
        location=archive_location(target, first, until),
    )

    def decode(rows: list[Row]) -> int | None:
        position, sources, location = rows[0]
        if position is not None or location is None:
            return None if position is None else int(position)
        columns = ["global_position", "metadata"]
        for batch in archived_messages(target, first, until, location, columns):
            for one in batch.select(columns).to_pylist():
                known = msgspec.json.decode(one["metadata"] or "null")
                known = known if isinstance(known, dict) else {}
                if known.get("pipeline") != pipeline or known.get("processor") in sources:
                    return int(one["global_position"])
        return None

    return call("message_from_elsewhere", query, None, decode)
