"""Outbox messages: new ones, claimed ones, and those in the table; and their payloads.

A payload is text, bytes, or a JSON value. SQL can enqueue bytes that do not match their encoding.
Such a payload is read as an `UndecodablePayload`, so that its message can be listed, and fails
without affecting others.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NewType, TypeVar
from uuid import UUID

import msgspec

from penstock.database.operation import Row
from penstock.errors import ValidationError, first_line, shown
from penstock.message import as_uuid, check_text, new_id
from penstock.message.serializer import JsonSerializer, encode_object

OutboxMessageId = NewType("OutboxMessageId", UUID)
JoinId = NewType("JoinId", UUID)
Stored = TypeVar("Stored", "ClaimedMessage", "OutboxMessage")

#: the topic of messages that wait for a join, which dispatchers resolve
WAIT_TOPIC = "join.wait"

#: what Python can hold in any time zone
_EARLIEST = datetime(1, 1, 2, tzinfo=UTC)
_LATEST = datetime(9999, 12, 30, tzinfo=UTC)

STATES = ("ready", "in_progress", "done", "failed")

_JSON = JsonSerializer()


@dataclass(frozen=True, slots=True)
class UndecodablePayload:
    """The bytes of a payload that do not match their encoding, and the reason."""

    raw: bytes
    encoding: str
    reason: str

    def __str__(self) -> str:
        return f"{shown(self.raw)}, which is not {self.encoding}: {self.reason}"


Payload = str | bytes | dict[str, Any] | list[Any] | int | float | bool | UndecodablePayload | None


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
class TopicState:
    """How many messages of a topic are in a state, and since when the oldest."""

    topic: str
    state: str
    count: int
    oldest: datetime | None
    #: of the first ready message: why it was not handled so far
    last_error: str | None = None


def check_topic(name: str, topic: str) -> str:
    """Return a checked topic for a message."""
    if check_text(name, topic) == WAIT_TOPIC:
        raise ValidationError(name, topic, "another topic: joins.enqueue_wait makes such messages")
    return topic


def as_row(message: NewMessage) -> tuple[Any, ...]:
    """Return the values of a new message for its row; refuse a message that is not valid."""
    if not isinstance(message, NewMessage):
        raise ValidationError("message", message, "a NewMessage")
    for name in ("correlation_id", "dedupe_key"):
        if getattr(message, name) is not None:
            check_text(name, getattr(message, name))
    return (
        new_id() if message.id is None else as_uuid(message.id),
        check_topic("topic", message.topic),
        *encode_payload(message.payload),
        _check_due(message.due),
        message.correlation_id,
        message.dedupe_key,
    )


def _check_due(due: datetime | None) -> datetime | None:
    if due is None:
        return None
    if not isinstance(due, datetime) or due.utcoffset() is None:
        raise ValidationError("due", due, "a datetime with a time zone")
    if not _EARLIEST <= due <= _LATEST:
        raise ValidationError("due", due, "from the year 1 to the year 9999, in any time zone")
    return due


def from_row(kind: type[Stored], row: Row) -> Stored:
    """Return the message that a row stands for."""
    id, topic, payload, encoding, *rest = row
    return kind(id, topic, decode_payload(payload, encoding), *rest)


def encode_payload(payload: object, name: str = "payload") -> tuple[bytes, str]:
    """Return the payload's bytes and their encoding: text, json or bytes."""
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload), "bytes"
    if isinstance(payload, str):
        try:
            return payload.encode(), "text"
        except UnicodeEncodeError:
            raise ValidationError(name, payload, "text without unpaired surrogates") from None
    try:
        wrapped = encode_object(_JSON, "", name, {"payload": payload})
    except ValidationError as error:
        raise ValidationError(name, payload, error.expected) from None
    encoded = wrapped[len('{"payload":') : -1].encode()
    if msgspec.json.decode(encoded) != payload:  # as of a UUID, a set, a tuple, keys of numbers
        raise ValidationError(name, payload, "text, bytes, or what JSON gives back as it was")
    return encoded, "json"


def decode_payload(payload: bytes, encoding: str) -> Payload:
    """Return the payload as it was enqueued, or an `UndecodablePayload`."""
    if encoding == "bytes":
        return payload
    try:
        if encoding == "text":
            return payload.decode()
        return msgspec.json.decode(payload)  # type: ignore[no-any-return]
    except (ValueError, RecursionError) as error:
        return UndecodablePayload(payload, encoding, first_line(error))
