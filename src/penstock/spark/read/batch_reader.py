"""Reading a part of the log as one frame: planned once, complete up to one watermark.

Spark plans a loaded frame at its first action and keeps the plan, so every frame derived from it
reads the same messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.spark.connections import DatabaseRef, connected, run
from penstock.spark.options import LATEST, ReadOptions
from penstock.spark.read import planning
from penstock.spark.read.arrow import read_batches
from penstock.spark.read.columns import read_plan
from penstock.spark.read.splits import Split, find_splits
from penstock.spark.target import Target


@dataclass(frozen=True)
class SplitPartition(InputPartition):
    """What one task reads: a split of a target that is prepared for reading."""

    target: Target
    split: Split
    #: raise if retention removed some of it before it was read
    complete: bool = False


class BatchReader(DataSourceReader):
    """Reads the messages of a target, or a range of them."""

    def __init__(self, database: DatabaseRef, options: ReadOptions, schema: StructType) -> None:
        self.database = database
        self.options = options
        self.schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Return what each task reads."""
        options = self.options
        with connected(self.database) as connection:
            target = planning.prepare(connection, options.target, self.database.where)
            head = run(connection, planning.head(target))
            after = head if options.after == LATEST else options.after
            first = target.before_first if after is None else int(after)
            until = head if options.until is None else min(head, options.until)
            splits = find_splits(connection, target, first, until, options.partitions)
        # for an empty list Spark would call read() with no partition
        return [SplitPartition(target, one) for one in splits or [Split(first, first)]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one split, in Arrow batches."""
        assert isinstance(partition, SplitPartition)
        plan = read_plan(self.schema, null_if_wrong=self.options.null_if_wrong)
        return read_batches(self.database, partition.target, plan, partition.split)
