"""What a step reads: chosen once, recorded before anything runs, named by its hash.

A step reads the messages after each tailer, up to the watermark and the processor's limit. A
snapshot that was recorded and not committed is run again unchanged, so that a step is the same step
however often it is attempted. Two things replace it by another snapshot: the graph has changed, or
the step contains a message that cannot be processed. Nothing of it was published then.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from penstock.pipeline.connection import RunConnection
from penstock.pipeline.frames import queue_target
from penstock.pipeline.graph import Processor
from penstock.spark.read import planning

Range = tuple[int, int]
HIGHEST = 2**63 - 1


@dataclass(frozen=True)
class Snapshot:
    """The ranges of a step's inputs, and how far its tables are read."""

    processor: str
    generation: int
    #: by queue: after which position, up to which
    ranges: Mapping[str, Range] = field(default_factory=dict)
    tables: Mapping[str, Range] = field(default_factory=dict)
    #: of a source: where it continues
    cursor: Any = None
    #: counts the steps of a source, which has no ranges that differ
    number: int | None = None
    #: by queue: the last message of its range. A log that was restored fills the same ranges again
    #: with other messages: that is another step, and has another hash
    last_ids: Mapping[str, str] = field(default_factory=dict)

    def as_data(self) -> dict[str, Any]:
        """Return the data of its record in the backing stream."""
        facts: dict[str, Any] = {
            "processor": self.processor,
            "generation": self.generation,
            "ranges": dict(self.ranges),
            "tables": dict(self.tables),
        }
        if self.number is not None:
            facts |= {"cursor": self.cursor, "number": self.number}
        if self.last_ids:
            facts["last_ids"] = dict(self.last_ids)
        text = msgspec.json.encode(facts, order="sorted")
        return {**facts, "hash": hashlib.blake2b(text, digest_size=16).hexdigest()}

    @property
    def hash(self) -> str:
        """The name of the delivery: the same whenever this snapshot is run."""
        return str(self.as_data()["hash"])

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Snapshot:
        """Return the snapshot that a record of the backing stream holds."""
        return msgspec.convert(data, cls)


@dataclass(frozen=True)
class State:
    """The state of a processor in the database."""

    generation: int
    #: the start positions of queues that this pipeline publishes anew, since it began again
    starts: Mapping[str, int]
    cursor: Any
    rebuilding: bool
    tailers: Mapping[str, int]
    #: the snapshot that was recorded and not committed
    pending: Snapshot | None
    #: how many steps of a source were begun: it runs once unless it has a cursor
    begun: int | None
    #: where the files of the last step are and where they belong, if it wrote any
    files: Sequence[Mapping[str, str]] = ()

    def start_of(self, queue: str) -> int:
        """Return the position after which a queue begins for this processor."""
        return self.starts.get(queue, queue_target(queue).before_first)

    def tailer(self, queue: str) -> int:
        """Return the position up to which the processor has read a queue."""
        return self.tailers.get(queue, self.start_of(queue))


@dataclass
class Remembered:
    """What a run remembers of a processor between its steps. Losing it costs time, nothing else."""

    #: the hash of a snapshot that failed and must not be run again unchanged
    failed: str | None = None
    #: a message that cannot be processed is at or before this position
    suspect: int | None = None
    #: it was found, and the messages between it and `suspect` may be processable
    found: bool = False
    #: the tables with which the function did not fail on an empty input, in this search
    cleared: Mapping[str, Range] | None = None
    #: the reason that the last failed messages share, and how many they are in a row
    last_reason: str | None = None
    in_a_row: int = 0
    #: the files of the last step of an earlier run are in place
    files_settled: bool = False
    #: the positions of the tailers at the last look, by queue
    tailers: Mapping[str, int] = field(default_factory=dict)
    #: by queue: read no further than this; where the log was when `run_until_idle` began
    ends: Mapping[str, int] = field(default_factory=dict)
    #: by queue: the range that was chosen last, and how many messages it has
    counted: dict[str, tuple[Range, int]] = field(default_factory=dict)

    def count_of(self, queue: str, chosen: Range) -> int | None:
        """Return how many messages of a queue a range has, if they were counted already."""
        found, count = self.counted.get(queue, (None, 0))
        return count if found == chosen else None

    def end_of(self, queue: str, head: int) -> int:
        """Return how far a queue may be read in this run."""
        return min(head, self.ends.get(queue, HIGHEST))


def next_snapshot(
    connection: RunConnection, one: Processor, state: State, remembered: Remembered
) -> Snapshot | None:
    """Return what the next step reads, or None if there is nothing to do."""
    if state.pending is not None and _can_resume(one, state, remembered):
        return state.pending
    if one.kind == "source":  # it runs once; one that has a cursor continues from there
        if state.begun is not None and state.cursor is None:
            return None
        number = (state.begun or 0) + 1
        return Snapshot(one.name, state.generation, cursor=state.cursor, number=number)
    ranges = _ranges(connection, one, state, remembered)
    if not ranges:
        return None
    options = connection.lake_options
    heads = {queue: planning.head(queue_target(queue, (), options)) for queue in one.looks_up}
    tables = {queue: (state.start_of(queue), connection.run(head)) for queue, head in heads.items()}
    ends = {
        queue: connection.run(planning.offset(queue_target(queue), until))
        for queue, (_, until) in ranges.items()
    }
    last_ids = {queue: end["id"] for queue, end in ends.items() if "id" in end}
    return Snapshot(one.name, state.generation, ranges, tables, last_ids=last_ids)


def _can_resume(one: Processor, state: State, remembered: Remembered) -> bool:
    """Whether the pending snapshot still fits the graph and the tailers, and has not failed."""
    pending = state.pending
    assert pending is not None
    if pending.hash == remembered.failed or pending.generation != state.generation:
        return False
    if one.kind == "source":
        return pending.number is not None
    queues = set(pending.ranges)
    fits = queues == set(one.inputs) or (len(queues) == 1 and queues <= set(one.alts))
    unmoved = all(state.tailer(queue) == start for queue, (start, _) in pending.ranges.items())
    return fits and unmoved and set(pending.tables) == set(one.looks_up)


def _ranges(
    connection: RunConnection, one: Processor, state: State, remembered: Remembered
) -> dict[str, Range]:
    """Return the new messages: of every input once each has some, or of the first of the alts."""
    ranges: dict[str, Range] = {}
    for queue in one.reads:
        start, end = _range(connection, one, queue, state, remembered)
        if start < end:
            ranges[queue] = (start, end)
            if one.alts:
                return ranges
        elif one.inputs:
            return {}
    return ranges


def _range(
    connection: RunConnection, one: Processor, queue: str, state: State, remembered: Remembered
) -> Range:
    target, start = queue_target(queue, (), connection.lake_options), state.tailer(queue)
    until = remembered.end_of(queue, connection.run(planning.head(target)))
    limit = one.limit
    if remembered.suspect is not None and start < remembered.suspect <= until:
        until = remembered.suspect
        if not remembered.found:  # search one half, then the other
            count = connection.run(planning.count_up_to(target, start, until, one.limit))
            limit = max(1, count // 2)
    if until <= start:
        return start, start
    end, count = connection.run(planning.page_after(target, start, until, limit))
    remembered.counted[queue] = ((start, end), count)
    return start, end
