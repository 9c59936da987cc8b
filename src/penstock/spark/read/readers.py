"""Reading the log into Spark: as one frame, or as a stream of micro-batches.

A frame is complete up to one watermark. Spark plans a loaded frame at its first action and keeps
the plan, so every frame derived from it reads the same messages.

A stream misses no message, however late it commits. An offset is the number of an existing message:
everything at or below it has been read, and nothing can appear there later. Offsets never go back.
Spark asks for the latest offset many times a second; after an answer without new messages the next
one is delayed, a little longer each time, until a writer notifies (`database/wake_ups.py`). So an
idle query costs the database a few look-ups a second, and a new message starts a batch at once.

A checkpoint lives outside the database. The database may be restored from a backup and grow past
the checkpoint again. So an offset carries the id of its message, and before a batch is planned the
log must still hold that message: otherwise the query ends with `LogChanged`, or continues where
option `onRestore` says. Offsets of Penstock 0.1 are positions alone; of these only the ones beyond
the end are noticed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.database.edition import Edition
from penstock.database.operation import Operation
from penstock.database.replica import ReadPoint
from penstock.database.waiters import Registration, of_category
from penstock.database.wake_ups import WakeUps
from penstock.errors import DatabaseUnreachable, LogChanged, OffsetBeyondEnd
from penstock.lake.archive_batches import files_of
from penstock.lake.archive_range import ArchiveFile
from penstock.loops.signals import Wakeup
from penstock.message import names
from penstock.spark.connections import (
    Connection,
    DatabaseRef,
    check_replica,
    connect,
    connected,
    run,
    take_point,
)
from penstock.spark.options import LATEST, ReadOptions
from penstock.spark.read import planning
from penstock.spark.read.archive_rows import archived_range, find_archive, moved_since
from penstock.spark.read.arrow import PlannedFiles, read_batches
from penstock.spark.read.columns import read_plan
from penstock.spark.read.planning import Offset
from penstock.spark.read.splits import Split, find_splits
from penstock.spark.target import Target

log = logging.getLogger(__name__)
SHORTEST_PAUSE, LONGEST_PAUSE = 0.025, 0.2  # seconds, when there was nothing new
Result = TypeVar("Result")


@dataclass(frozen=True)
class SplitPartition(InputPartition):
    """What one task reads: a split of a target that is prepared for reading."""

    target: Target
    split: Split
    #: raise if retention removed some of it before it was read
    complete: bool = False
    #: the files with the archived messages of the split
    planned: PlannedFiles | None = None
    #: at which a replica is read, if there is one
    point: ReadPoint | None = None


class _QueryWakeups:
    """The wake-ups of one query."""

    def __init__(self, database: DatabaseRef, target: Target) -> None:
        self._wakeup = Wakeup()
        self._wake_ups: WakeUps | None = None
        if database.settings.wake_up:
            self._wake_ups = WakeUps(database.settings, Edition.PENSTOCK)
            one = Registration([_waited_for(target)], self._wakeup.wake)
            self._wake_ups.waiters.add(one)
            self._wake_ups.listen()

    def wait(self, seconds: float) -> bool:
        """Wait for a wake-up, for at most this time. Return whether there was one."""
        return self._wakeup.wait(seconds)

    def close(self) -> None:
        """Stop listening."""
        if self._wake_ups is not None:
            self._wake_ups.close()


def _waited_for(target: Target) -> str:
    if target.stream:
        return of_category(names.category(target.stream))
    return of_category(target.category or "$all")


class _Reader:
    def __init__(self, database: DatabaseRef, options: ReadOptions, schema: StructType) -> None:
        self.database = database
        self.options = options.signed_in(database.settings.lake_options)
        self.schema = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one split, in Arrow batches."""
        assert isinstance(partition, SplitPartition)
        target, split = partition.target, partition.split
        plan = read_plan(self.schema, null_if_wrong=self.options.null_if_wrong)
        planned, point = partition.planned, partition.point
        yield from read_batches(self.database, target, plan, split, planned, point)
        if partition.complete:
            with connected(self.database) as connection:
                planning.check_nothing_removed(connection, target, split.after, split.until)


def plan_splits(
    connection: Connection,
    target: Target,
    after: int,
    until: int,
    most: int,
    *,
    complete: bool = False,
    point: ReadPoint | None = None,
    without: str | None = None,
) -> list[SplitPartition]:
    """Return what each task reads of a range, at most so many tasks.

    `point` is where they read a replica, and was taken after the end of the range. What the archive
    had at the location `without` is left out.
    """
    location = run(connection, find_archive(target, after, until)) if after < until else None
    files: Sequence[ArchiveFile] = ()
    if location is not None and without is not None:
        files, _ = moved_since(target, after, until, location, without)
    elif location is not None:
        files = files_of(archived_range(target, after, until, location))
    counted = () if target.attributes else files  # the index counts archived messages, too
    splits = find_splits(connection, target, after, until, most, counted)
    return [
        SplitPartition(
            target, one, complete, _planned(target, one, location, files, without), point
        )
        for one in splits
    ]


def _planned(
    target: Target,
    split: Split,
    location: str | None,
    files: Sequence[ArchiveFile],
    without: str | None,
) -> PlannedFiles | None:
    """Return the files that a split needs, while the archive is as it is now."""
    if without is not None:
        return PlannedFiles(location, (), without)
    if location is None:
        return None
    where = archived_range(target, split.after, split.until, location)
    return PlannedFiles(location, tuple(one for one in files if where.may_be_in(one)))


class BatchReader(_Reader, DataSourceReader):
    """Reads the messages of a target, or a range of them."""

    def partitions(self) -> Sequence[InputPartition]:
        """Return what each task reads."""
        options = self.options
        with connected(self.database) as connection:
            target = planning.prepare(connection, options.target, self.database.where)
            head = run(connection, planning.head(target))
            after = head if options.after == LATEST else options.after
            first = target.before_first if after is None else int(after)
            until = head if options.until is None else min(head, options.until)
            check_replica(connection, self.database)
            point = take_point(connection, self.database)
            found = plan_splits(
                connection, target, first, until, options.partitions, point=point,
                without=options.without_archive,
            )  # fmt: skip
        # for an empty list Spark would call read() with no partition
        return found or [SplitPartition(target, Split(first, first), point=point)]


class StreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reports the end of the log as an offset, and reads what lies between two offsets."""

    def __init__(self, database: DatabaseRef, options: ReadOptions, schema: StructType) -> None:
        super().__init__(database, options, schema)
        self._target: Target | None = None
        self._connection: Connection | None = None
        self._until: int | None = options.until
        self._latest: int | None = None
        self._pause = 0.0
        self._wakeups: _QueryWakeups | None = None
        self._checked = False  # the offset of the checkpoint, on this connection

    def initialOffset(self) -> Offset:  # noqa: N802
        """Return the offset before the first message that a new query reads."""
        after = self.options.after
        if after is None:
            return {"position": self.options.target.before_first}
        return self._offset(self._run(planning.head) if after == LATEST else int(after))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return how many rows a micro-batch may have."""
        most = self.options.max_rows_per_batch
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read no further than the log reaches now."""
        self._until = self._head()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return how far to read next: the start itself if there is nothing new."""
        if not self._checked and (moved := self._moved(start)):
            return moved
        after = int(start["position"])
        if self._pause and self._wait_for_ring():
            self._pause = 0.0  # if it is held back by an open writer, look again soon
        head = self._head()
        if head <= after:
            self._pause = min(max(2 * self._pause, SHORTEST_PAUSE), LONGEST_PAUSE)
            return start
        if moved := self._moved(start):
            return moved
        self._pause = 0.0
        if isinstance(limit, ReadMaxRows):
            end, most = head, limit.max_rows
            head = self._run(lambda target: planning.end_after(target, after, end, most))
        return self._offset(max(after, head))

    def reportLatestOffset(self) -> Offset:  # noqa: N802
        """Return the end of the log, for the query's progress."""
        return {"position": self._head() if self._latest is None else self._latest}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return what each task of a micro-batch reads."""
        after, until = start["position"], end["position"]
        if after >= until:
            return []
        # Spark may begin with a batch that it planned before
        checks = self.options.fail_on_data_loss or self.options.on_restore is not None
        if checks and not self._checked and self._moved(end):
            return []
        # a query from the beginning takes what is there
        complete = self.options.fail_on_data_loss and after != self.options.target.before_first

        def plan(connection: Connection, target: Target) -> list[SplitPartition]:
            if complete:
                planning.check_nothing_removed(connection, target, after, until)
            most, point = self.options.partitions, take_point(connection, self.database)
            return plan_splits(
                connection, target, after, until, most, complete=complete, point=point
            )

        return self._ask(plan)

    def stop(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
        if self._wakeups is not None:
            self._wakeups.close()

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the connections, to be sent to tasks."""
        return {**self.__dict__, "_connection": None, "_wakeups": None}

    def _wait_for_ring(self) -> bool:
        """Wait until messages may have been written. Return whether there was a wake-up."""
        if self._wakeups is None:
            self._wakeups = _QueryWakeups(self.database, self.options.target)
        return self._wakeups.wait(self._pause)

    def _moved(self, offset: Offset) -> Offset | None:
        """Return where to continue if this is not an offset of the log as it is now, or raise."""
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
            log.warning("continuing from %d: %s", position, error)
            return self._offset(position)
        self._checked = True
        return None

    def _offset(self, position: int) -> Offset:
        return self._run(lambda target: planning.offset(target, position))

    def _head(self) -> int:
        head = self._run(planning.head)
        self._latest = head if self._until is None else min(head, self._until)
        return self._latest

    def _run(self, build: Callable[[Target], Operation[Result]]) -> Result:
        """Run the operation that is built for the prepared target."""
        return self._ask(lambda connection, target: run(connection, build(target)))

    def _ask(self, question: Callable[[Connection, Target], Result]) -> Result:
        """Ask the database, once more on a fresh connection if the old one was lost."""
        try:
            return question(*self._prepared())
        except DatabaseUnreachable:
            self._connection = None
            return question(*self._prepared())

    def _prepared(self) -> tuple[Connection, Target]:
        if self._connection is None or self._connection.closed:
            self._connection = connect(self.database)
            self._target = None
            self._checked = False  # the server may have been restored meanwhile
        if self._target is None:
            target = self.options.target
            self._target = planning.prepare(self._connection, target, self.database.where)
            check_replica(self._connection, self.database)
        return self._connection, self._target
