"""What a trace is made of: messages with their causes, and the nodes of its tree."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from penstock.console.data.log import MessageRow
from penstock.message import RecordedMessage


@dataclass(frozen=True, slots=True)
class TraceNode:
    """Something that happened, and what followed from it."""

    #: message, outbox, join, step or commit (of a table)
    kind: str
    #: a message's or outbox message's id, a join's id, a step's delivery, a table's snapshot
    id: str
    #: the type, the topic, the processor or the table
    title: str
    #: the stream, the state, what a step has read
    subtitle: str
    time: datetime | None
    global_position: int | None
    #: how it is linked to the node above it
    link: str
    #: False: it is linked by the same step or correlation, not by a cause of its own
    certain: bool
    #: whether it is what was asked for
    asked_for: bool
    children: tuple[TraceNode, ...] = ()
    #: how many more there are that are not shown
    more: int = 0


@dataclass(frozen=True, slots=True)
class CausedMessage:
    """A message of the log, as far as a trace needs it."""

    id: str
    global_position: int
    type: str
    stream_name: str
    position: int
    time: datetime
    cause: str | None
    correlation: str | None
    delivery: str | None


def as_caused(one: RecordedMessage) -> CausedMessage:
    """Return a message that was read, as far as a trace needs it."""
    return CausedMessage(
        id=str(one.id),
        global_position=one.global_position,
        type=one.type,
        stream_name=one.stream_name,
        position=one.position,
        time=one.time,
        cause=one.causation_id,
        correlation=one.correlation_id,
        delivery=(one.metadata or {}).get("delivery"),
    )


def as_output(row: MessageRow, delivery: str) -> CausedMessage:
    """Return an output of a step, as far as a trace needs it."""
    return CausedMessage(
        id=str(row.id),
        global_position=row.global_position,
        type=row.type,
        stream_name=row.stream_name,
        position=row.position,
        time=row.time,
        cause=row.causation_id,
        correlation=row.correlation_id,
        delivery=delivery,
    )
