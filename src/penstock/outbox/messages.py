"""Outbox messages: what they are, from the one to enqueue to the one that is done."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NewType
from uuid import UUID

from penstock.database.operation import Row
from penstock.errors import ValidationError
from penstock.message import as_uuid, check_text, new_id
from penstock.outbox import payload as payloads
from penstock.outbox.checks import check_due, check_topic
from penstock.outbox.payload import Payload

OutboxMessageId = NewType("OutboxMessageId", UUID)
JoinId = NewType("JoinId", UUID)

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
class CleanedUp:
    """How much of a batch was removed."""

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
    """A topic that a dispatcher does not handle, and since when its first message is due."""

    topic: str
    due: datetime


def as_row(message: NewMessage) -> tuple[Any, ...]:
    """Return a new message as it is sent, or refuse it."""
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
        check_due(message.due),
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
