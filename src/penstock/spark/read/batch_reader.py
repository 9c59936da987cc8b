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

from penstock.spark.connections import Place, connected
from penstock.spark.options import LATEST, ReadOptions
from penstock.spark.read import planning, splits
from penstock.spark.read.arrow import read_batches
from penstock.spark.read.columns import plan
from penstock.spark.read.splits import Piece
from penstock.spark.read.target import Target


@dataclass(frozen=True)
class Part(InputPartition):
    """What one task reads: a piece of a target that is ready to be read."""

    target: Target
    piece: Piece
    #: raise if retention removed some of it before it was read
    complete: bool = False


class BatchReader(DataSourceReader):
    """Reads what a target holds, or a range of it."""

    def __init__(self, place: Place, options: ReadOptions, schema: StructType) -> None:
        self.place = place
        self.options = options
        self.schema = schema
        self.target = options.target

    def partitions(self) -> Sequence[InputPartition]:
        """Return what each task reads."""
        options = self.options
        with connected(self.place) as connection:
            target = planning.prepare(connection, self.target, self.place.where)
            head = planning.head(connection, target)
            after = head if options.after == LATEST else options.after
            first = target.before_first if after is None else int(after)
            until = head if options.until is None else min(head, options.until)
            found = splits.pieces(connection, target, first, until, options.partitions)
        # Spark takes no parts at all for one that is not told what to read
        return [Part(target, one) for one in found or [Piece(first, first)]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one part, in Arrow batches."""
        assert isinstance(partition, Part)
        columns = plan(self.schema, null_if_wrong=self.options.null_if_wrong)
        return read_batches(self.place, partition.target, columns, partition.piece)
