"""What does the next step read? The messages after each tailer, up to the watermark and the limit.

A snapshot that was begun and not committed is taken up again as it stands, so that a step is the
same step however often it is tried; unless the graph has changed meanwhile, or the step was found
to hold a message that cannot be processed: then nothing of it was published, and another snapshot
takes its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import psycopg

from penstock.pipeline.frames import count_up_to, queue_target
from penstock.pipeline.graph import Processor
from penstock.pipeline.snapshot import Range, Snapshot
from penstock.pipeline.state import State
from penstock.spark.connections import run
from penstock.spark.read import planning

Connection = psycopg.Connection[Any]


@dataclass
class Memory:
    """What a run remembers of a processor between steps. Losing it costs time, nothing else."""

    #: a snapshot that failed and must not be tried again as it stands
    failed: str | None = None
    #: somewhere up to here is a message that cannot be processed
    suspect: int | None = None
    #: it was found, and the rest up to there may be in order
    found: bool = False
    #: the tables with which the function was found to work on no message at all, in this search
    cleared: Mapping[str, Range] | None = None
    #: what the last messages that were blamed have in common, and how many they are, with none
    #: that was processed between them
    alike: str | None = None
    in_a_row: int = 0
    #: files of the step before this run are in their place
    settled: bool = False
    #: where it stood when it looked last, by queue
    tailers: Mapping[str, int] = field(default_factory=dict)
    #: read no further than this, by queue: where the log was when a run of `--once` began
    ends: Mapping[str, int] = field(default_factory=dict)


def choose(connection: Connection, one: Processor, state: State, memory: Memory) -> Snapshot | None:
    """Return what the next step reads, or None if there is nothing to do."""
    if state.pending is not None and _can_resume(one, state, memory):
        return state.pending
    if one.kind == "source":
        return _source_snapshot(one, state)
    ranges = _first_range(connection, one, state, memory) if one.alts else _all_ranges(
        connection, one, state, memory
    )  # fmt: skip
    if not ranges:
        return None
    tables = {queue: _table(connection, queue, state) for queue in one.looks_up}
    return Snapshot(
        one.name, state.generation, ranges, tables, last_ids=_last_ids(connection, ranges)
    )


def tailer(queue: str, state: State) -> int:
    """Return the number up to which a processor has read a queue."""
    return state.tailers.get(queue, beginning(queue, state))


def beginning(queue: str, state: State) -> int:
    """Return the number after which a queue begins for a processor."""
    return state.floors.get(queue, queue_target(queue).before_first)


def _can_resume(one: Processor, state: State, memory: Memory) -> bool:
    """Whether the pending snapshot still fits: the graph, the tailers, and what is known of it."""
    pending = state.pending
    assert pending is not None
    if pending.hash == memory.failed or pending.generation != state.generation:
        return False
    if one.kind == "source":
        return pending.number is not None
    queues = set(pending.ranges)
    fits = queues == set(one.inputs) or (len(queues) == 1 and queues <= set(one.alts))
    stands = all(tailer(queue, state) == start for queue, (start, _) in pending.ranges.items())
    return fits and stands and set(pending.tables) == set(one.looks_up)


def _source_snapshot(one: Processor, state: State) -> Snapshot | None:
    """A source runs once; one that has a cursor goes on from there."""
    if state.begun is not None and state.cursor is None:
        return None
    return Snapshot(one.name, state.generation, cursor=state.cursor, number=(state.begun or 0) + 1)


def _all_ranges(
    connection: Connection, one: Processor, state: State, memory: Memory
) -> dict[str, Range]:
    """Return the new messages of every input; nothing while one of them has none."""
    ranges: dict[str, Range] = {}
    for queue in one.inputs:
        start, end = _range(connection, one, queue, state, memory)
        if start == end:
            return {}
        ranges[queue] = (start, end)
    return ranges


def _first_range(
    connection: Connection, one: Processor, state: State, memory: Memory
) -> dict[str, Range]:
    """Return the new messages of the first of the alternatives that has any."""
    for queue in one.alts:
        start, end = _range(connection, one, queue, state, memory)
        if start < end:
            return {queue: (start, end)}
    return {}


def _last_ids(connection: Connection, ranges: Mapping[str, Range]) -> dict[str, str]:
    """Return the id of the last message of each range."""
    ends = {
        queue: run(connection, planning.offset(queue_target(queue), until))
        for queue, (_, until) in ranges.items()
    }
    return {queue: end["id"] for queue, end in ends.items() if "id" in end}


def _range(
    connection: Connection, one: Processor, queue: str, state: State, memory: Memory
) -> Range:
    target, start = queue_target(queue), tailer(queue, state)
    until = min(run(connection, planning.head(target)), memory.ends.get(queue, 2**63 - 1))
    limit = one.limit
    if memory.suspect is not None and start < memory.suspect <= until:
        until = memory.suspect
        if not memory.found:  # look for the message in one half, then in the other
            limit = max(1, count_up_to(connection, target, start, until, one.limit) // 2)
    if until <= start:
        return start, start
    return start, run(connection, planning.end_after(target, start, until, limit))


def _table(connection: Connection, queue: str, state: State) -> Range:
    target = queue_target(queue)
    return state.floors.get(queue, target.before_first), run(connection, planning.head(target))
