"""Outbox messages: what they are, and the operations on them.

The mechanism is described in `sql/penstock/40_outbox.sql`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NewType
from uuid import UUID

from penstock.database.operation import Operation, Row, call, only_value
from penstock.errors import UnsupportedEdition, ValidationError
from penstock.log.context import LogContext, check_position
from penstock.message import as_uuid, check_text, new_id
from penstock.outbox import payload as payloads
from penstock.outbox.payload import Payload

OutboxMessageId = NewType("OutboxMessageId", UUID)
JoinId = NewType("JoinId", UUID)

STATES = ("ready", "in_progress", "done", "failed")

_COLUMNS = (
    "id, topic, payload, encoding, state, due, correlation_id, dedupe_key, owner, lease_until,"
    " attempts, last_error, created_at, finished_at"
)


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to enqueue, for `enqueue_many`."""

    topic: str
    payload: Payload
    due: datetime | None = None
    correlation_id: str | None = None
    id: UUID | str | None = None
    dedupe_key: str | None = None


@dataclass(frozen=True, slots=True)
class ClaimedMessage:
    """A message that is yours to handle, until its lease ends."""

    id: OutboxMessageId
    topic: str
    payload: Payload
    correlation_id: str | None
    due: datetime
    #: how often it was claimed, this time included
    attempts: int
    token: UUID
    created_at: datetime


@dataclass(frozen=True, slots=True)
class OutboxMessage:
    """A message of the outbox, whatever its state."""

    id: OutboxMessageId
    topic: str
    payload: Payload
    state: str
    due: datetime
    correlation_id: str | None
    dedupe_key: str | None
    owner: str | None
    lease_until: datetime | None
    attempts: int
    last_error: str | None
    created_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class TopicState:
    """How many messages of a topic are in a state, and since when the oldest."""

    topic: str
    state: str
    count: int
    oldest: datetime | None


@dataclass(slots=True)
class Floor:
    """How far along the ready messages a claimer is. It looks from the start now and then."""

    every: int = 50
    due: datetime | None = None
    id: UUID | None = None
    _looks: int = field(default=0)

    def take(self) -> tuple[datetime | None, UUID | None]:
        """Return where to claim from this time."""
        self._looks += 1
        if self._looks % self.every == 0:
            self.due = self.id = None
        return self.due, self.id

    def note(self, claimed: Sequence[ClaimedMessage]) -> None:
        """Go on from the first of these next time; from the start if there were none."""
        if claimed:
            first = min(claimed, key=lambda one: (one.due, one.id))
            self.due, self.id = first.due, first.id
        else:
            self.due = self.id = None


def enqueue(
    context: LogContext, messages: Iterable[NewMessage], joins: Iterable[UUID] = ()
) -> Operation[list[OutboxMessageId]]:
    """Put messages into the outbox; the result is their ids."""
    check_edition(context)
    checked = [_row(one) for one in messages]
    if not checked:
        raise ValidationError("messages", checked, "at least one message")
    columns = [list(column) for column in zip(*checked, strict=True)]
    return call(
        "enqueue",
        "select penstock.enqueue(%s::uuid[], %s::text[], %s::bytea[], %s::text[],"
        " %s::timestamptz[], %s::text[], %s::text[], %s::uuid[])",
        (*columns, [as_uuid(one) for one in joins]),
        only_value,
        count=len(checked),
    )


def claim(
    context: LogContext,
    owner: str,
    limit: int,
    lease: float,
    floor: tuple[datetime | None, UUID | None] = (None, None),
) -> Operation[list[ClaimedMessage]]:
    """Claim due messages, oldest first."""
    check_edition(context)
    check_text("owner", owner)
    check_position("limit", limit, 1)
    return call(
        "claim",
        "select * from penstock.claim_outbox(%s, %s, %s, %s, %s)",
        (owner, limit, as_interval("lease", lease), *floor),
        lambda rows: sorted((_claimed(row) for row in rows), key=lambda one: (one.due, one.id)),
        owner=owner,
    )


def finish(
    ids: Sequence[UUID], token: UUID, outcome: str, error: str | None = None
) -> Operation[list[OutboxMessageId]]:
    """Finish messages as 'done' or 'failed'; the result is the ids that were not held."""
    return call(
        "ack" if outcome == "done" else "fail",
        "select penstock.finish_outbox(%s::uuid[], %s, %s, %s)",
        (list(ids), token, outcome, error),
        only_value,
        count=len(ids),
    )


def abandon(
    ids: Sequence[UUID], token: UUID, delay: float, error: str | None
) -> Operation[list[OutboxMessageId]]:
    """Give messages back; the result is the ids that were not held."""
    return call(
        "abandon",
        "select penstock.abandon_outbox(%s::uuid[], %s, %s, %s)",
        (list(ids), token, as_interval("delay", delay, lowest=0), error),
        only_value,
        count=len(ids),
    )


def extend(ids: Sequence[UUID], token: UUID, lease: float) -> Operation[list[OutboxMessageId]]:
    """Hold messages for another lease; the result is the ids that were not held."""
    return call(
        "extend",
        "select penstock.extend_outbox(%s::uuid[], %s, %s)",
        (list(ids), token, as_interval("lease", lease)),
        only_value,
        count=len(ids),
    )


def reap(context: LogContext) -> Operation[int]:
    """Make messages ready whose lease has ended."""
    check_edition(context)
    return call("reap_expired", "select penstock.reap_outbox()", (), only_value)


def get(context: LogContext, id: UUID | str) -> Operation[OutboxMessage | None]:
    """Look up one message."""
    check_edition(context)
    return call(
        "get",
        f"select {_COLUMNS} from penstock.outbox where id = %s",  # noqa: S608
        (as_uuid(id),),
        lambda rows: _message(rows[0]) if rows else None,
    )


def listing(
    context: LogContext,
    topic: str | None,
    state: str | None,
    limit: int,
) -> Operation[list[OutboxMessage]]:
    """List messages, oldest first."""
    check_edition(context)
    if state is not None and state not in STATES:
        raise ValidationError("state", state, f"one of {', '.join(STATES)}")
    return call(
        "list",
        f"select {_COLUMNS} from penstock.outbox"  # noqa: S608
        " where (%s::text is null or topic = %s) and (%s::text is null or state = %s)"
        " order by created_at, id limit %s",
        (topic, topic, state, state, check_position("limit", limit, 1)),
        lambda rows: [_message(row) for row in rows],
    )


def retry_failed(
    context: LogContext, ids: Sequence[UUID | str] | None, topic: str | None
) -> Operation[int]:
    """Make failed messages ready again."""
    check_edition(context)
    wanted = None if ids is None else [as_uuid(one) for one in ids]
    return call(
        "retry_failed", "select penstock.retry_outbox(%s::uuid[], %s)", (wanted, topic), only_value
    )


def clean_up(context: LogContext, before: datetime, limit: int, failed: bool) -> Operation[int]:
    """Remove a batch of finished messages."""
    check_edition(context)
    return call(
        "clean_up", "select penstock.clean_outbox(%s, %s, %s)", (before, limit, failed), only_value
    )


def summary(context: LogContext) -> Operation[list[TopicState]]:
    """Count messages by topic and state."""
    check_edition(context)
    return call(
        "outbox_summary",
        "select * from penstock.outbox_summary()",
        (),
        lambda rows: [TopicState(*row) for row in rows],
    )


def as_interval(name: str, seconds: float, lowest: float = 0.001) -> timedelta:
    """Return a checked number of seconds."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds < lowest:
        raise ValidationError(name, seconds, f"{lowest:g} seconds or more")
    return timedelta(seconds=seconds)


def check_edition(context: LogContext) -> None:
    """Refuse a database without Penstock's schema."""
    if not context.edition.has_watermark:
        raise UnsupportedEdition("the outbox needs Penstock's schema: run `penstock init`")


def _row(message: NewMessage) -> tuple[Any, ...]:
    check_text("topic", message.topic)
    for name in ("correlation_id", "dedupe_key"):
        if getattr(message, name) is not None:
            check_text(name, getattr(message, name))
    due = message.due
    if due is not None and (not isinstance(due, datetime) or due.tzinfo is None):
        raise ValidationError("due", due, "a datetime with a time zone")
    payload, encoding = payloads.encode(message.payload)
    return (
        new_id() if message.id is None else as_uuid(message.id),
        message.topic,
        payload,
        encoding,
        due,
        message.correlation_id,
        message.dedupe_key,
    )


def _claimed(row: Row) -> ClaimedMessage:
    id, topic, payload, encoding, correlation_id, due, attempts, token, created_at = row
    return ClaimedMessage(
        id,
        topic,
        payloads.decode(payload, encoding),
        correlation_id,
        due,
        attempts,
        token,
        created_at,
    )


def _message(row: Row) -> OutboxMessage:
    id, topic, payload, encoding, *rest = row
    return OutboxMessage(id, topic, payloads.decode(payload, encoding), *rest)
