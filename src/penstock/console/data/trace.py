"""From any message its causes and its consequences, as a tree."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from penstock.store_async import AsyncStore


@dataclass(frozen=True, slots=True)
class TraceNode:
    """Something that happened, and what followed from it."""

    #: message, outbox, join, step or commit (of a table)
    kind: str
    #: a message's or outbox message's id, a join's id, a step's delivery
    id: str
    #: the type, the topic, the processor or the table
    title: str
    #: the stream, the state, the pipeline
    subtitle: str
    time: datetime | None
    global_position: int | None
    #: how it is linked to the node above it: causation, correlation, joined, follow-up, read by,
    #: same step, wrote
    link: str
    #: False: it is linked by the same step or correlation, not by a cause of its own
    certain: bool
    #: whether it is what was asked for
    asked_for: bool
    children: tuple[TraceNode, ...] = ()
    #: how many more there are that are not shown
    more: int = 0


@dataclass(frozen=True, slots=True)
class Trace:
    """The first cause that is known, and everything that followed."""

    root: TraceNode
    #: what was not looked at, one sentence each
    not_looked_at: tuple[str, ...]


async def trace(store: AsyncStore, key: int | str | UUID) -> Trace:
    """Return the causes and consequences of a message: its global position, or its id.

    The id may also be that of an outbox message or of a join.
    """
    raise NotImplementedError
