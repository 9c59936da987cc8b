"""Reading the log as a stream: micro-batches that leave nothing out, however late it commits.

An offset is the number of a message that was there: everything at or below it has been read, and
nothing can appear there any more. Offsets never go back. Spark asks for the latest one many times
a second; where there was nothing new, the next answer waits a moment, and longer each time, so
that an idle query costs the database a few look-ups a second.

A checkpoint is outside the database, which may be restored from a backup meanwhile and grow past it
again. So an offset has the id of its message, and before a batch is planned the log must still hold
that message: else the query ends with `LogChanged`, or goes on where option `onRestore` says.
Offsets of Penstock 0.1 are positions alone, of which only the ones beyond the end are noticed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import psycopg
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.database.server_errors import typed_errors
from penstock.errors import DatabaseUnreachable, LogChanged, OffsetBeyondEnd
from penstock.spark.connections import Place, connect, connected
from penstock.spark.options import LATEST, ReadOptions
from penstock.spark.read import planning, splits
from penstock.spark.read.arrow import read_batches
from penstock.spark.read.batch_reader import Part
from penstock.spark.read.columns import plan
from penstock.spark.read.planning import Offset
from penstock.spark.read.target import Target

log = logging.getLogger(__name__)
SHORTEST_PAUSE, LONGEST_PAUSE = 0.025, 0.2  # seconds, when there was nothing new
Result = TypeVar("Result")
Question = Callable[[psycopg.Connection[Any], Target], Result]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Tells Spark how far the log has come, and reads what lies between two offsets."""

    def __init__(self, place: Place, options: ReadOptions, schema: StructType) -> None:
        self.place = place
        self.options = options
        self.schema = schema
        self._target: Target | None = None
        self._connection: psycopg.Connection[Any] | None = None
        self._until: int | None = options.until
        self._latest: int | None = None
        self._pause = 0.0
        self._begun = False

    def initialOffset(self) -> Offset:  # noqa: N802
        """Return the offset before the first message that a new query reads."""
        after = self.options.after
        if after is None:
            return {"position": self.options.target.before_first}
        return self._offset(self._ask(planning.head) if after == LATEST else int(after))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return how many rows a micro-batch may have."""
        most = self.options.max_rows_per_batch
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read no further than the log has come by now."""
        self._until = self._head()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return how far to read next: the start itself if there is nothing new."""
        if not self._begun and (moved := self._moved(start)):
            return moved
        after = int(start["position"])
        time.sleep(self._pause)
        head = self._head()
        if head <= after:
            self._pause = min(max(2 * self._pause, SHORTEST_PAUSE), LONGEST_PAUSE)
            return start
        if moved := self._moved(start):
            return moved
        self._pause = 0.0
        if isinstance(limit, ReadMaxRows):
            most = limit.max_rows
            head = self._ask(lambda c, target: planning.end_after(c, target, after, head, most))
        return self._offset(max(after, head))

    def reportLatestOffset(self) -> Offset:  # noqa: N802
        """Return how far the log has come, for the query's progress."""
        return {"position": self._head() if self._latest is None else self._latest}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return what each task of a micro-batch reads."""
        after, until = start["position"], end["position"]
        if after >= until:
            return []
        # Spark begins with a batch that it had planned before
        checks = self.options.fail_on_data_loss or self.options.on_restore is not None
        if checks and not self._begun and self._moved(end):
            return []
        # who begins at the beginning takes what there is
        complete = self.options.fail_on_data_loss and after != self.options.target.before_first

        def cut(connection: psycopg.Connection[Any], target: Target) -> list[InputPartition]:
            if complete:
                planning.check_nothing_removed(connection, target, after, until)
            pieces = splits.pieces(connection, target, after, until, self.options.partitions)
            return [Part(target, one, complete) for one in pieces]

        return self._ask(cut)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one part, in Arrow batches."""
        assert isinstance(partition, Part)
        target, piece = partition.target, partition.piece
        columns = plan(self.schema, null_if_wrong=self.options.null_if_wrong)
        yield from read_batches(self.place, target, columns, piece)
        if partition.complete:
            with connected(self.place) as connection:
                planning.check_nothing_removed(connection, target, piece.after, piece.until)

    def stop(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()

    def __getstate__(self) -> dict[str, Any]:
        """Travel to the tasks without the connection."""
        return {**self.__dict__, "_connection": None}

    def _moved(self, offset: Offset) -> Offset | None:
        """Return where to go on instead, if this is no offset of the log as it is; or raise."""
        position = int(offset["position"])
        try:
            self._ask(lambda c, target: planning.check_offset(c, target, offset))
        except (OffsetBeyondEnd, LogChanged) as error:
            if self.options.on_restore is not None:
                position = self.options.on_restore
            elif self.options.fail_on_data_loss:
                raise
            elif isinstance(error, OffsetBeyondEnd):
                position = error.end
            log.warning("goes on from %d: %s", position, error)
            return self._offset(position)
        self._begun = True
        return None

    def _offset(self, position: int) -> Offset:
        return self._ask(lambda c, target: planning.offset(c, target, position))

    def _head(self) -> int:
        head = self._ask(planning.head)
        self._latest = head if self._until is None else min(head, self._until)
        return self._latest

    def _ask(self, question: Question[Result]) -> Result:
        """Ask the database, once more on a fresh connection if the old one was lost."""
        try:
            return self._ask_once(question)
        except DatabaseUnreachable:
            self._connection = None
            return self._ask_once(question)

    def _ask_once(self, question: Question[Result]) -> Result:
        with typed_errors(self.place.where):
            if self._connection is None or self._connection.closed:
                self._connection = connect(self.place)
                self._target = None
                self._begun = False  # the server may have been restored meanwhile
            if self._target is None:
                target = self.options.target
                self._target = planning.prepare(self._connection, target, self.place.where)
            return question(self._connection, self._target)
