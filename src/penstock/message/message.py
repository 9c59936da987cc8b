"""Messages to write (`Message`) and messages that were read (`RecordedMessage`).

Both are immutable. The database assigns the position in the stream, the position in the log, and
the time. The client assigns the id, so that a write can be repeated safely. New ids are ordered by
time (UUID version 7), which keeps their index compact.

Metadata can have any fields. The conventional ones have properties, and `follow` returns a message
with the correlation of the message that caused it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, make_dataclass, replace
from datetime import datetime
from typing import Any, get_type_hints
from uuid import UUID

import msgspec

from penstock.errors import ValidationError
from penstock.message import names

_CARRIED_ON = ("reply_stream_name", "trace_id", "correlationStreamName")
_STANDARD_FORM = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def new_id() -> UUID:
    """Return a new message id that sorts after those of earlier milliseconds (UUID version 7)."""
    milliseconds = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10))
    value = (milliseconds & 0xFFFF_FFFF_FFFF) << 80 | random
    value = value & ~(0xF << 76) & ~(0x3 << 62) | 0x7 << 76 | 0x2 << 62
    return msgspec.convert(f"{value:032x}", UUID)  # three times as fast as UUID(...)


class _Conventions:
    """The conventional metadata fields, and `follow`."""

    __slots__ = ()

    id: UUID
    metadata: Any

    @property
    def correlation_id(self) -> str | None:
        """The id shared by related messages across streams."""
        return self._metadata_field("correlation_id")

    @property
    def causation_id(self) -> str | None:
        """The id of the message that caused this one."""
        return self._metadata_field("causation_id")

    @property
    def reply_stream_name(self) -> str | None:
        """The stream for replies to this message."""
        return self._metadata_field("reply_stream_name")

    @property
    def schema_version(self) -> str | None:
        """The version of the schema of `data`."""
        return self._metadata_field("schema_version")

    @property
    def trace_id(self) -> str | None:
        """The id of the distributed trace."""
        return self._metadata_field("trace_id")

    def follow(
        self,
        type: str,
        data: Mapping[str, Any] | None = None,
        *,
        id: UUID | str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Message:
        """Return a message that this one caused, with its correlation id, and its id as causation.

        The correlation id defaults to this message's id. `metadata` overrides these fields.
        """
        check_object("metadata", metadata)
        mine = self.metadata or {}
        carried = {name: mine[name] for name in _CARRIED_ON if name in mine}
        return Message(
            type,
            data,
            metadata={
                **carried,
                "correlation_id": self.correlation_id or str(self.id),
                "causation_id": str(self.id),
                **(metadata or {}),
            },
            id=new_id() if id is None else as_uuid(id),
        )

    def _metadata_field(self, name: str) -> str | None:
        value = self.metadata.get(name) if self.metadata else None
        return value if value is None or isinstance(value, str) else str(value)


@dataclass(frozen=True, slots=True)
class Message(_Conventions):
    """A message to write. The constructor checks it, before anything is sent."""

    type: str
    data: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] | None = None
    id: UUID = field(default_factory=new_id, kw_only=True)

    def __post_init__(self) -> None:
        """Check that the database can store the message."""
        check_text("type", self.type)
        check_object("data", self.data)
        check_object("metadata", self.metadata)
        if type(self.id) is not UUID:
            object.__setattr__(self, "id", as_uuid(self.id))

    def with_metadata(self, **fields: Any) -> Message:
        """Return the same message, same id, with these metadata fields set."""
        return replace(self, metadata={**(self.metadata or {}), **fields})

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dict that JSON can represent."""
        data, metadata = (None if one is None else dict(one) for one in (self.data, self.metadata))
        return {"id": str(self.id), "type": self.type, "data": data, "metadata": metadata}


def checked_message(
    type: str, data: dict[str, Any], metadata: dict[str, Any] | None, id: UUID
) -> Message:
    """Return a message whose fields are already checked."""
    made = object.__new__(Message)
    object.__setattr__(made, "type", type)
    object.__setattr__(made, "data", data)
    object.__setattr__(made, "metadata", metadata)
    object.__setattr__(made, "id", id)
    return made


class RecordedMessage(msgspec.Struct, _Conventions, frozen=True):
    """A message that was read from the log.

    `data` stored as SQL NULL is an empty dict; `metadata` stored as SQL NULL is None.
    """

    id: UUID
    stream_name: str
    type: str
    position: int
    global_position: int
    data: dict[str, Any]
    metadata: dict[str, Any] | None
    time: datetime

    @property
    def category(self) -> str:
        """The category of the message's stream."""
        return names.category(self.stream_name)

    @property
    def resume_token(self) -> str:
        """The position and id, to resume `after` this message and detect a changed log."""
        return f"{self.global_position}@{self.id}"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dict that JSON can represent."""
        return {**msgspec.structs.asdict(self), "id": str(self.id), "time": self.time.isoformat()}


# This attribute makes it a dataclass for `dataclasses.asdict`, pydantic and FastAPI.
_types = get_type_hints(RecordedMessage)
RecordedMessage.__dataclass_fields__ = make_dataclass(  # type: ignore[attr-defined]
    "RecordedMessage", [(name, _types[name]) for name in RecordedMessage.__struct_fields__]
).__dataclass_fields__


def check_text(name: str, value: object) -> str:
    """Return `value` if it is a non-empty str that PostgreSQL can store, or raise."""
    if not isinstance(value, str) or not value:
        raise ValidationError(name, value, "a non-empty string")
    if "\0" in value:
        raise ValidationError(name, value, "text without NUL characters")
    if not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value):
        raise ValidationError(name, value, "text without unpaired surrogates")
    return value


def check_object(name: str, value: object) -> None:
    """Raise unless the value is None or a mapping with str keys."""
    if value is None:
        return
    if type(value) is not dict and not isinstance(value, Mapping):
        raise ValidationError(name, value, "a JSON object (a dict) or None")
    for key in value:
        if not isinstance(key, str):
            raise ValidationError(f"{name} key", key, "a str, as in every JSON object")


def as_uuid(value: object) -> UUID:
    """Return `value`, a UUID or its standard text form, as a UUID."""
    if isinstance(value, UUID):
        return value
    if isinstance(value, str) and _STANDARD_FORM.fullmatch(value):
        return UUID(value)
    raise ValidationError("id", value, "a UUID such as '018f6d1c-7a2b-7c3d-8e4f-5a6b7c8d9e0f'")
