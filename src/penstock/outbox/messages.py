"""Outbox messages: new ones, claimed ones, and those in the table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NewType, TypeVar
from uuid import UUID

from penstock.database.operation import Row
from penstock.errors import StaleLease, ValidationError
from penstock.message import as_uuid, check_text, new_id
from penstock.outbox import payload as payloads
from penstock.outbox.payload import Payload

OutboxMessageId = NewType("OutboxMessageId", UUID)
JoinId = NewType("JoinId", UUID)
Item = TypeVar("Item")

#: the topic of messages that wait for a join, which dispatchers resolve
WAIT_TOPIC = "join.wait"

#: what Python can hold in any time zone
_EARLIEST = datetime(1, 1, 2, tzinfo=UTC)
_LATEST = datetime(9999, 12, 30, tzinfo=UTC)

STATES = ("ready", "in_progress", "done", "failed")

#: of the table, in the order of `OutboxMessage`; another client may have put any moment there
COLUMNS = (
    "id, topic, payload, encoding, state, penstock.readable_moment(due), correlation_id,"
    " dedupe_key, owner, penstock.readable_moment(lease_until), attempts, last_error,"
    " penstock.readable_moment(created_at), penstock.readable_moment(finished_at)"
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
    """A message under a lease: its owner may handle it until the lease ends."""

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
class CleanedUp:
    """How many messages and joins a batch of cleaning up has removed."""

    messages: int
    joins: int


@dataclass(frozen=True, slots=True)
class TopicState:
    """How many messages of a topic are in a state, and since when the oldest."""

    topic: str
    state: str
    count: int
    oldest: datetime | None
    #: of the first ready message: why it was not handled so far
    last_error: str | None = None


@dataclass(frozen=True, slots=True)
class UnhandledTopic:
    """A topic that a dispatcher has no handler for, and when its first message became due."""

    topic: str
    due: datetime


def as_row(message: NewMessage) -> tuple[Any, ...]:
    """Return the values of a new message for its row; refuse a message that is not valid."""
    if not isinstance(message, NewMessage):
        raise ValidationError("message", message, "a NewMessage")
    check_topic("topic", message.topic)
    for name in ("correlation_id", "dedupe_key"):
        if getattr(message, name) is not None:
            check_text(name, getattr(message, name))
    payload, encoding = payloads.encode(message.payload)
    return (
        new_id() if message.id is None else as_uuid(message.id),
        message.topic,
        payload,
        encoding,
        _check_due(message.due),
        message.correlation_id,
        message.dedupe_key,
    )


def as_claimed(row: Row) -> ClaimedMessage:
    """Return the claimed message that a row stands for."""
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


def as_message(row: Row) -> OutboxMessage:
    """Return the message that a row stands for."""
    id, topic, payload, encoding, *rest = row
    return OutboxMessage(id, topic, payloads.decode(payload, encoding), *rest)


def check_topic(name: str, topic: str) -> str:
    """Return a checked topic for a message."""
    if check_text(name, topic) == WAIT_TOPIC:
        raise ValidationError(name, topic, "another topic: joins.enqueue_wait makes such messages")
    return topic


def _check_due(due: datetime | None) -> datetime | None:
    if due is None:
        return None
    if not isinstance(due, datetime) or due.utcoffset() is None:
        raise ValidationError("due", due, "a datetime with a time zone")
    if not _EARLIEST <= due <= _LATEST:
        raise ValidationError("due", due, "from the year 1 to the year 9999, in any time zone")
    return due


def listed(name: str, several: Iterable[Item]) -> list[Item]:
    """Return an iterable as a list; refuse a single text, and what is no iterable."""
    if isinstance(several, str | bytes) or not isinstance(several, Iterable):
        raise ValidationError(name, several, "several, such as a list of them")
    return list(several)


def ids_by_token(
    messages: ClaimedMessage | Iterable[ClaimedMessage],
) -> list[tuple[UUID, list[UUID]]]:
    """Return the ids of claimed messages, by the token of their claim."""
    several = [messages] if isinstance(messages, ClaimedMessage) else listed("messages", messages)
    tokens: dict[UUID, list[UUID]] = {}
    for one in several:
        if not isinstance(one, ClaimedMessage):
            raise ValidationError("message", one, "a message that claim() returned")
        tokens.setdefault(one.token, []).append(one.id)
    return list(tokens.items())


def refuse_stale(stale: list[UUID]) -> None:
    """Raise `StaleLease` if the leases of some messages had ended."""
    if stale:
        raise StaleLease(tuple(str(one) for one in stale))
