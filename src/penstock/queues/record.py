"""Records: what is offered to a queue, what a session reads, and the message that holds it.

A record is one message of type `Offered`. Its value is `data["value"]`. Its key and headers, if it
has any, are in the metadata: `key` for text, `key_base64` for bytes, `headers` for an object of
text. A message of any other shape is not a record.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from penstock.errors import ValidationError
from penstock.message import Message, RecordedMessage, as_uuid, new_id

TYPE = "Offered"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Record:
    """A record to offer: a JSON value, with an optional key and headers.

    Its id is chosen here, so offering the same `Record` again adds nothing.
    """

    value: Any
    key: str | bytes | None = None
    headers: Mapping[str, str] | None = None
    id: UUID = field(default_factory=new_id, kw_only=True)

    def __post_init__(self) -> None:
        """Refuse what a reader would not get back unchanged."""
        if isinstance(self.value, Record):
            raise ValidationError("value", self.value, "a value; offer_many() takes records")
        if self.key is not None and not isinstance(self.key, str | bytes):
            raise ValidationError("key", self.key, "text, bytes or None")
        if self.headers is not None and not _is_texts(self.headers):
            raise ValidationError("headers", self.headers, "a mapping of text to text, or None")
        object.__setattr__(self, "id", as_uuid(self.id))

    def message(self) -> Message:
        """Return the message that holds this record."""
        metadata: dict[str, Any] = {}
        if isinstance(self.key, bytes):
            metadata["key_base64"] = b64encode(self.key).decode()
        elif self.key is not None:
            metadata["key"] = self.key
        if self.headers:
            metadata["headers"] = dict(self.headers)
        return Message(TYPE, {"value": self.value}, metadata or None, id=self.id)


@dataclass(frozen=True, slots=True)
class ConsumedRecord:
    """A record that was read from a queue."""

    #: its place in the queue, from 0 on
    offset: int
    key: str | bytes | None
    #: empty if it has none
    headers: dict[str, str]
    value: Any
    #: when it was offered, in UTC
    timestamp: datetime

    @property
    def timestamp_ms(self) -> int:
        """When it was offered, in milliseconds since 1970-01-01 UTC."""
        return (self.timestamp - _EPOCH) // timedelta(milliseconds=1)


def records_from(values: Iterable[Any]) -> list[Record]:
    """Return values as records. A `Record` is used as it is."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise ValidationError("values", values, "an iterable of values, such as a list")
    return [value if isinstance(value, Record) else Record(value) for value in values]


def record_of(message: RecordedMessage, offset: int) -> ConsumedRecord:
    """Return the record that the message at this offset holds.

    Raises:
        ValueError: The message is not a record.
    """
    if message.type != TYPE:
        raise ValueError(f"a message of type {message.type!r} is not a record")
    if message.data.keys() != {"value"}:
        raise ValueError("its data should have one field, 'value'")
    metadata = message.metadata or {}
    headers = metadata.get("headers") or {}
    if not _is_texts(headers):
        raise ValueError("its headers should be an object of text")
    value = message.data["value"]
    return ConsumedRecord(offset, _key(metadata), headers, value, message.time)


def _key(metadata: Mapping[str, Any]) -> str | bytes | None:
    if (encoded := metadata.get("key_base64")) is not None:
        return b64decode(encoded, validate=True)
    key = metadata.get("key")
    if key is not None and not isinstance(key, str):
        raise ValueError("its key should be text")
    return key


def _is_texts(headers: object) -> bool:
    return isinstance(headers, Mapping) and all(
        isinstance(name, str) and isinstance(text, str) for name, text in headers.items()
    )
