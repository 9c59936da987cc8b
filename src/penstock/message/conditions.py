"""Conditions on messages: a type, and an attribute with its value.

Conditions of one type are combined: a message matches if it has at least one of their attributes,
and each of them that it has is equal to a given value. Two values for one attribute are
alternatives, and so are different types. A condition without an attribute matches every message of
its type.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.errors import ValidationError
from penstock.message.message import check_text


@dataclass(frozen=True, slots=True)
class QueryCondition:
    """A message type and, optionally, an attribute and its value."""

    type: str
    name: str | None = None
    value: str | None = None

    def __post_init__(self) -> None:
        """Check the fields, and convert the value to text as PostgreSQL does."""
        check_text("type", self.type)
        if self.name is not None:
            check_text("name", self.name)
            object.__setattr__(self, "value", attribute_text(self.name, self.value))
        elif self.value is not None:
            raise ValidationError("name", self.name, f"the attribute whose value is {self.value!r}")


def checked_condition(type: str, name: str, value: str) -> QueryCondition:
    """Return a condition whose fields are already checked."""
    made = object.__new__(QueryCondition)
    object.__setattr__(made, "type", type)
    object.__setattr__(made, "name", name)
    object.__setattr__(made, "value", value)
    return made


def matches(conditions: Iterable[QueryCondition], type: str, data: Mapping[str, Any]) -> bool:
    """Whether a message matches, as `penstock.matching_positions` finds it in the log.

    `data` is as in JSON. An attribute that is not text, a whole number or a boolean is refused.
    """
    wanted: dict[str, set[str | None]] = {}
    for one in conditions:
        if one.type == type and one.name is None:
            return True
        if one.type == type and one.name is not None and data.get(one.name) is not None:
            wanted.setdefault(one.name, set()).add(one.value)
    return bool(wanted) and all(
        attribute_text(name, data[name]) in values for name, values in wanted.items()
    )


def attribute_text(name: str, value: object) -> str:
    """Return an attribute's value as the text that PostgreSQL's `->>` returns."""
    if type(value) is str and value.isascii() and "\0" not in value:  # the usual case
        return value
    try:
        plain = msgspec.to_builtins(value, builtin_types=(bytes, bytearray, memoryview))
    except TypeError:
        plain = None
    if isinstance(plain, bool):
        return "true" if plain else "false"
    if isinstance(plain, int):
        return str(plain)
    if isinstance(plain, str):
        return check_text(f"attribute {name}", plain) if plain else plain
    raise ValidationError(
        f"attribute {name}", value, "a str, int or bool, or a value that is one in JSON"
    )
