"""Values as JSON has them, with the fields hidden that viewers must not see.

The pages and the JSON under `/api/` are made of the same plain values, so a field that is hidden is
hidden in both. Fields are hidden by name, at any depth of what applications write: data, metadata,
payloads, attributes and rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from urllib.parse import quote, unquote
from uuid import UUID

import msgspec

from penstock.errors import ValidationError

HIDDEN = "•••"
#: the fields of our own values that hold what applications write
_WRITTEN = frozenset(
    ("data", "metadata", "payload", "attributes", "rows", "rows_in", "rows_out", "follow_up")
)
#: the fields of our own values that hold attributes as text: `name:value|name:value`
_KEYS = frozenset(("partition_key", "what", "name", "key"))
#: the fields of our own values that repeat one of the metadata
_METADATA = frozenset(("correlation_id", "causation_id", "reply_stream_name", "trace_id"))


class Plain:
    """Makes plain values of dataclasses, and hides fields by their names."""

    def __init__(self, redact: Iterable[str] = ()) -> None:
        if isinstance(redact, str):
            raise ValidationError("redact", redact, "the names of fields, such as ('email',)")
        self.hidden = frozenset(redact)
        for name in self.hidden:
            if not isinstance(name, str) or not name:
                raise ValidationError("redact", name, "the name of a field")
        names = "|".join(re.escape(name) for name in sorted(self.hidden))
        self._in_keys = re.compile(rf"(^|[|\s])({names}):((?:[^|\\]|\\.)*)")

    def __call__(self, value: Any, *, written: bool = False) -> Any:
        """Return the value as dicts, lists, texts, numbers and times."""
        if isinstance(value, str):
            return self._text(value) if written and self.hidden else value
        if value is None or isinstance(value, int | float | bool | datetime):
            return value
        if isinstance(value, Mapping):
            return {str(name): self._field(name, one, written) for name, one in value.items()}
        if is_dataclass(value):
            return {
                one.name: self._field(one.name, getattr(value, one.name), written)
                for one in fields(value)
            }
        if isinstance(value, list | tuple | set | frozenset):
            return [self(one, written=written) for one in value]
        if isinstance(value, bytes):
            return self(value.decode(errors="backslashreplace"), written=written)
        return _leaf(value)

    def _field(self, name: object, value: Any, written: bool) -> Any:
        if name in self.hidden and (written or name in _METADATA):
            return None if value is None else HIDDEN
        return self(value, written=written or name in _WRITTEN or name in _KEYS)

    def _text(self, text: str) -> str:
        """Return a text without what is hidden: in JSON, and in keys of partitions."""
        if text.startswith("partition/"):  # a dead letter's key
            group, _, key = text.rpartition("/")
            return f"{group}/{quote(self._without(unquote(key)), safe='')}"
        if not text.lstrip().startswith(("{", "[")):
            return self._without(text)
        try:
            return msgspec.json.encode(self(msgspec.json.decode(text), written=True)).decode()
        except (msgspec.DecodeError, RecursionError):
            # cut, or not JSON: it cannot be told what is in it
            return HIDDEN if any(name in text for name in self.hidden) else text

    def _without(self, text: str) -> str:
        return self._in_keys.sub(rf"\1\2:{HIDDEN}", text)

    def whole(self, content: bytes, *, written: bool = False) -> bytes:
        """Return JSON without the fields that are hidden; what is not JSON as it is."""
        if not self.hidden:
            return content
        try:
            return msgspec.json.encode(self(msgspec.json.decode(content), written=written))
        except RecursionError:
            raise ValidationError("data", "•••", "JSON that is not nested so deeply") from None
        except msgspec.DecodeError:
            text = content.decode(errors="replace")
            hidden = self._text(text)
            return content if hidden == text else hidden.encode()

    def check_visible(self, name: str) -> None:
        """Refuse to search by a hidden field: its values could be guessed."""
        if name in self.hidden:
            raise ValidationError("attribute", name, "one that the console does not hide")


def _leaf(value: Any) -> Any:
    match value:
        case timedelta():
            return value.total_seconds()
        case Enum():
            return value.value
        case UUID() | Decimal() | date() | time():
            return str(value)
        case _:
            return str(value)
