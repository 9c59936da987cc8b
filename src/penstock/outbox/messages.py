"""Outbox messages: what they are, and the operations on them.

The mechanism is described in `sql/penstock/40_outbox.sql`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NewType
from uuid import UUID

from penstock.database.operation import Operation, Row, call, only_value
from penstock.errors import UnsupportedEdition, ValidationError
from penstock.failure import kept_error
from penstock.log.context import LogContext, check_position
from penstock.message import as_uuid, check_text, new_id
from penstock.outbox import payload as payloads
from penstock.outbox.payload import Payload

OutboxMessageId = NewType("OutboxMessageId", UUID)
JoinId = NewType("JoinId", UUID)

#: the topic of messages that wait for a join, which dispatchers resolve
WAIT_TOPIC = "join.wait"

STATES = ("ready", "in_progress", "done", "failed")

_LONGEST = 10 * 366 * 86_400

_COLUMNS = (
    "id, topic, payload, encoding, state, due, correlation_id, dedupe_key, owner, lease_until,"
    " attempts, last_error, created_at, finished_at"
)


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to enqueue, for `enqueue_many`."""

    topic: str
    payload: Payload = None
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
    #: None while it sleeps, as the wait for a join does
    due: datetime | None
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


def enqueue(
    context: LogContext, messages: Iterable[NewMessage], joins: Iterable[UUID | str] = ()
) -> Operation[list[OutboxMessageId]]:
    """Put messages into the outbox; the result is their ids."""
    check_edition(context)
    if isinstance(joins, str):
        raise ValidationError("joins", joins, "several join ids, such as a list")
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
    check_limit(limit)
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
        (list(ids), token, outcome, None if outcome == "done" else kept_error(error)),
        only_value,
        count=len(ids),
    )


def abandon(
    ids: Sequence[UUID], token: UUID, delay: float, error: str | None, counts: bool = True
) -> Operation[list[OutboxMessageId]]:
    """Give messages back; the result is the ids that were not held.

    Unless it `counts`, no attempt was used up.
    """
    kept = None if error is None else kept_error(error)
    return call(
        "abandon",
        "select penstock.abandon_outbox(%s::uuid[], %s, %s, %s, %s)",
        (list(ids), token, as_interval("delay", delay, lowest=0), kept, counts),
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
    if topic is not None:
        check_text("topic", topic)
    return call(
        "list",
        f"select {_COLUMNS} from penstock.outbox"  # noqa: S608
        " where (%s::text is null or topic = %s) and (%s::text is null or state = %s)"
        " order by created_at, id limit %s",
        (topic, topic, state, state, check_limit(limit)),
        lambda rows: [_message(row) for row in rows],
    )


def retry_failed(
    context: LogContext, ids: Sequence[UUID | str] | None, topic: str | None
) -> Operation[int]:
    """Make failed messages ready again."""
    check_edition(context)
    if isinstance(ids, str):
        raise ValidationError("ids", ids, "several ids, such as a list")
    if topic is not None:
        check_text("topic", topic)
    wanted = None if ids is None else [as_uuid(one) for one in ids]
    return call(
        "retry_failed", "select penstock.retry_outbox(%s::uuid[], %s)", (wanted, topic), only_value
    )


def clean_up(
    context: LogContext, older_than: timedelta, limit: int, failed: bool
) -> Operation[int]:
    """Remove a batch of finished messages and of finished joins."""
    check_edition(context)
    if not isinstance(older_than, timedelta) or older_than < timedelta(0):
        raise ValidationError("older_than", older_than, "a timedelta of 0 or more")
    return call(
        "clean_up",
        "select penstock.clean_outbox(clock_timestamp() - %s, %s, %s)",
        (older_than, limit, failed),
        only_value,
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
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not lowest <= seconds <= _LONGEST:
        raise ValidationError(name, seconds, f"{lowest:g} seconds or more, and up to ten years")
    return timedelta(seconds=seconds)


def check_topic(name: str, topic: str) -> str:
    """Return a checked topic for a message."""
    if check_text(name, topic) == WAIT_TOPIC:
        raise ValidationError(name, topic, "another topic: enqueue_join_wait makes such messages")
    return topic


def check_limit(limit: int) -> int:
    """Return a checked limit."""
    if check_position("limit", limit, 1) >= 2**31:
        raise ValidationError("limit", limit, "less than 2,147,483,648")
    return limit


def check_edition(context: LogContext) -> None:
    """Refuse a database without Penstock's schema."""
    if not context.edition.has_watermark:
        raise UnsupportedEdition("the outbox needs Penstock's schema: run `penstock init`")


def _row(message: NewMessage) -> tuple[Any, ...]:
    if not isinstance(message, NewMessage):
        raise ValidationError("message", message, "a NewMessage")
    check_topic("topic", message.topic)
    for name in ("correlation_id", "dedupe_key"):
        if getattr(message, name) is not None:
            check_text(name, getattr(message, name))
    due = message.due
    if due is not None and (not isinstance(due, datetime) or due.utcoffset() is None):
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
