"""Decisions that do not grow with their history: the state of a boundary, and what came after it.

A state is kept with the guard under which it is true: it is made of the messages that the guard has
seen, and only of recorded ones, in the order of the log. The next decision reads the messages that
the guard has not seen, and lets the state evolve. The new guard covers these too, and the append
checks it. So a state that is behind costs a longer read, and never a wrong decision.

A state is not continued, and the boundary is read again, from a snapshot or from its first message,

- if the log was truncated since, or restored to an earlier moment;
- if messages of its types were removed since, whether it has seen them or not: it never knows more
  or less than the log;
- if a message was committed late, below others that it has seen: `evolve` gets messages in order.

`decisions_async.py` does the I/O.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from penstock.database.operation import Operation, Row, Stubs, call, only_value
from penstock.errors import ValidationError
from penstock.log.context import LogContext
from penstock.log.decider import Decider
from penstock.log.guard import Guard, grouped_json
from penstock.message import RecordedMessage, check_text
from penstock.message.conditions import QueryCondition


@dataclass(frozen=True, slots=True)
class BoundaryState:
    """The state of a boundary, and the guard under which it is true."""

    #: not to be changed: who would change it gets a copy
    state: Any
    guard: Guard
    #: of the log, when the guard was read; None before the first read
    incarnation: UUID | None = None
    #: up to where messages of its types had been removed then
    removed_to: int = 0
    #: how many messages have been read since the last snapshot
    unsaved: int = 0

    @property
    def last_position(self) -> int:
        """The position up to which there are messages in it: none is above."""
        return self.guard.seen[-1][1] if self.guard.seen else self.guard.low


@dataclass(frozen=True, slots=True)
class Unseen:
    """The messages that a guard has not seen, and what tells whether a state can be continued."""

    messages: list[RecordedMessage]
    complete_to: int
    removed_to: int
    incarnation: UUID
    #: the end of the log
    last_position: int


@dataclass(frozen=True, slots=True)
class SnapshotStatus:
    """The snapshots of one version of a decider."""

    decider: str
    version: str
    boundaries: int
    #: of their states
    bytes: int
    oldest: datetime
    newest: datetime


def initial_state(decider: Decider[Any, Any], guard: Guard) -> BoundaryState:
    """Return the state before the first message."""
    return BoundaryState(decider.initial, Guard(guard.conditions))


def cache_key(conditions: Iterable[QueryCondition]) -> Hashable:
    """Return the same for the same conditions, in whatever order."""
    return frozenset(conditions)


def advanced(decider: Decider[Any, Any], begin: BoundaryState, unseen: Unseen) -> BoundaryState:
    """Return the state with the messages that it had not seen."""
    positions = [one.global_position for one in unseen.messages]
    state = decider.evolved(begin.state, unseen.messages) if positions else begin.state
    return BoundaryState(
        state,
        begin.guard.after(positions, unseen.complete_to),
        unseen.incarnation,
        unseen.removed_to,
        begin.unsaved + len(positions),
    )


def continues(begin: BoundaryState, unseen: Unseen) -> bool:
    """Whether this log goes on where a state ends."""
    if unseen.incarnation != begin.incarnation or unseen.last_position < begin.last_position:
        return False  # truncated, or restored
    if unseen.removed_to != begin.removed_to:
        return False
    first = unseen.messages[0].global_position if unseen.messages else None
    return first is None or first > begin.last_position


def read_unseen(context: LogContext, guard: Guard) -> Operation[Unseen]:
    """Read the messages that match the guard's conditions and that it has not seen."""
    context.require_penstock("read")

    def decode(rows: list[Row]) -> Unseen:
        complete_to, removed_to, incarnation, last_position, *_ = rows[0]
        messages = context.decode([row[4:] for row in rows[1:]])
        return Unseen(messages, complete_to, removed_to, incarnation, last_position)

    return call(
        "read",
        "select * from penstock.read_unseen(%s::jsonb, %s, %s::int8multirange)",
        (grouped_json(guard.conditions), guard.low, guard.seen_ranges()),
        decode,
        conditions=len(guard.conditions),
    ).with_archive(Stubs(4, context.lake_options))


def load_snapshot(
    decider: Decider[Any, Any], conditions: tuple[QueryCondition, ...]
) -> Operation[BoundaryState | None]:
    """Return what a boundary's snapshot holds, with the state as it is encoded, if there is one."""

    def decode(rows: list[Row]) -> BoundaryState | None:
        if not rows:
            return None
        low, firsts, lasts, removed_to, incarnation, state = rows[0]
        guard = Guard(conditions, low, tuple(zip(firsts, lasts, strict=True)))
        return BoundaryState(state, guard, incarnation, removed_to)

    return call(
        "load_snapshot",
        "select low, firsts, lasts, removed_to, incarnation, state"
        " from penstock.load_snapshot(%s, %s, %s, %s::jsonb)",
        _key(decider, conditions),
        decode,
        decider=decider.name,
    )


def save_snapshot(decider: Decider[Any, Any], saved: BoundaryState) -> Operation[None]:
    """Save the state of a boundary, in place of its last snapshot."""
    guard = saved.guard
    return call(
        "save_snapshot",
        "select penstock.save_snapshot("
        "%s, %s, %s, %s::jsonb, %s, %s::int8multirange, %s, %s, %s::uuid, %s)",
        (
            *_key(decider, guard.conditions),
            guard.low,
            guard.seen_ranges(),
            saved.last_position,
            saved.removed_to,
            saved.incarnation,
            decider.codec.encode(saved.state),
        ),
        lambda _: None,
        decider=decider.name,
    )


def list_snapshots(context: LogContext) -> Operation[list[SnapshotStatus]]:
    """List the versions of deciders that have snapshots."""
    context.require_penstock("snapshots")
    return call(
        "list_snapshots",
        "select * from penstock.list_snapshots()",
        (),
        lambda rows: [SnapshotStatus(*row) for row in rows],
    )


def remove_snapshots(
    context: LogContext, decider: str, version: int | str | None, not_saved_for: timedelta | None
) -> Operation[int]:
    """Remove the snapshots of a decider, and return how many."""
    context.require_penstock("snapshots")
    check_text("decider", decider)
    if version is not None:
        if isinstance(version, bool) or not isinstance(version, int | str):
            raise ValidationError("version", version, "a whole number or a text")
        version = check_text("version", str(version))
    return call(
        "remove_snapshots",
        "select penstock.remove_snapshots(%s, %s, %s)",
        (decider, version, not_saved_for),
        only_value,
        decider=decider,
    )


def _key(
    decider: Decider[Any, Any], conditions: tuple[QueryCondition, ...]
) -> tuple[str | None, str, str, str]:
    """Return the name, the version, and the boundary, as a digest and as conditions in order."""
    in_order = sorted(conditions, key=lambda one: (one.type, one.name or "", one.value or ""))
    boundary = grouped_json(dict.fromkeys(in_order))
    digest = hashlib.sha256(boundary.encode()).hexdigest()
    return decider.name, str(decider.version), digest, boundary
