"""What a decision was made on: conditions, and a guard that tells whether they still hold.

A condition names a message type, an attribute and a value. Conditions of one type belong together:
a message matches if it carries at least one of their attributes, and each of them that it carries
has the value (two values for one attribute are alternatives). Different types are alternatives. A
condition without an attribute means every message of its type.

A guard says: I have seen every message that matches these conditions, at or below `low`, and those
at the positions `seen` above it. An append under a guard fails if another one has been written. A
guard is a value: it can be kept, sent and used again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.errors import ValidationError
from penstock.message import check_text


@dataclass(frozen=True, slots=True)
class QueryCondition:
    """A message type and, unless every message of it is meant, an attribute and its value."""

    type: str
    name: str | None = None
    value: str | None = None

    def __post_init__(self) -> None:
        """Refuse half a condition; turn a value into text as PostgreSQL does."""
        check_text("type", self.type)
        if self.name is not None:
            check_text("name", self.name)
            object.__setattr__(self, "value", attribute_text(self.name, self.value))
        elif self.value is not None:
            raise ValidationError("name", self.name, f"the attribute whose value is {self.value!r}")


def checked_condition(type: str, name: str, value: str) -> QueryCondition:
    """Return a condition of texts that have been checked already."""
    made = object.__new__(QueryCondition)
    object.__setattr__(made, "type", type)
    object.__setattr__(made, "name", name)
    object.__setattr__(made, "value", value)
    return made


@dataclass(frozen=True, slots=True)
class Guard:
    """Conditions, and which of the messages that match them have been seen."""

    conditions: tuple[QueryCondition, ...]
    #: everything that matches, at or below this global position, was seen
    low: int = 0
    #: and so were these, above it
    seen: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a guard that guards nothing."""
        conditions, seen = _tuple("conditions", self.conditions), _tuple("seen", self.seen)
        if not conditions:
            raise ValidationError("conditions", conditions, "at least one condition")
        for one in conditions:
            if not isinstance(one, QueryCondition):
                raise ValidationError("conditions", one, "QueryCondition objects")
        _check_position("low", self.low)
        for position in seen:
            _check_position("seen", position)
        if conditions is not self.conditions:
            object.__setattr__(self, "conditions", conditions)
        if seen is not self.seen:
            object.__setattr__(self, "seen", seen)

    def after(self, positions: Iterable[int], low: int | None = None) -> Guard:
        """Return the guard that has seen these positions too, and everything up to `low`."""
        low = self.low if low is None else max(low, self.low)
        seen = tuple([one for one in (*self.seen, *positions) if one > low])
        made = object.__new__(Guard)  # of what has been checked already
        object.__setattr__(made, "conditions", self.conditions)
        object.__setattr__(made, "low", low)
        object.__setattr__(made, "seen", seen)
        return made

    def as_json(self) -> str:
        """Return the guard as the database reads it."""
        conditions = _grouped(self.conditions)
        return _json({"conditions": conditions, "low": self.low, "seen": self.seen})


def grouped_json(conditions: Iterable[QueryCondition]) -> str:
    """Return one compound condition for each type, as the database reads them."""
    return _json(_grouped(conditions))


def _grouped(conditions: Iterable[QueryCondition]) -> list[dict[str, Any]]:
    by_type: dict[str, dict[str, list[str]]] = {}
    whole_types: set[str] = set()
    for one in conditions:
        attributes = by_type.setdefault(one.type, {})
        if one.name is None:
            whole_types.add(one.type)
        elif one.value is not None:
            values = attributes.setdefault(one.name, [])
            if one.value not in values:
                values.append(one.value)
    return [
        {"type": type, "attributes": {} if type in whole_types else attributes}
        for type, attributes in by_type.items()
    ]


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _tuple(name: str, several: Any) -> tuple[Any, ...]:
    if type(several) is tuple:
        return several
    if isinstance(several, str) or not isinstance(several, Iterable):
        raise ValidationError(name, several, "several, such as a list of them")
    return tuple(several)


def _check_position(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise ValidationError(name, value, "a global position")


def attribute_text(name: str, value: object) -> str:
    """Return an attribute's value as the text that PostgreSQL's `->>` gives for it."""
    if type(value) is str:
        if value.isascii() and "\0" not in value:  # as nearly all are
            return value
        plain: object = value
    else:
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
    raise ValidationError(f"attribute {name}", value, "text, a whole number or a truth value")
