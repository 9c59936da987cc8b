"""Guards: the messages that a decision is based on, so that an append can check it.

A guard records which of the messages that match its conditions have been seen: all of them at or
below `low`, and above it those within `seen`. An append under a guard fails if any other matching
message has been written. A guard is a value: it can be stored, sent and used again. How conditions
match is in `message/conditions.py`.

`seen` is a list of ranges of positions, first and last of each. A bulk append is one range, or a
few, so its guard is as small as that of a single message.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeGuard

import msgspec

from penstock.errors import ValidationError
from penstock.message.conditions import QueryCondition

#: the first and the last of consecutive global positions
PositionRange = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Guard:
    """Conditions, and which of the messages that match them have been seen."""

    conditions: tuple[QueryCondition, ...]
    #: all matching messages at or below this global position were seen
    low: int = 0
    #: and so were those above it within these ranges: the first and last position of each
    seen: tuple[PositionRange, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a guard without conditions, and invalid positions."""
        object.__setattr__(self, "conditions", _tuple("conditions", self.conditions))
        object.__setattr__(self, "seen", _tuple("seen", self.seen))
        if not self.conditions:
            raise ValidationError("conditions", self.conditions, "at least one condition")
        for one in self.conditions:
            if not isinstance(one, QueryCondition):
                raise ValidationError("conditions", one, "QueryCondition objects")
        if not _is_position(self.low):
            raise ValidationError("low", self.low, "a global position")
        for seen in self.seen:
            if not _is_range(seen):
                expected = "ranges of positions, first and last, such as (5, 7)"
                raise ValidationError("seen", seen, expected)

    def after(self, positions: Iterable[int], low: int | None = None) -> Guard:
        """Return the guard that has seen these positions too, and everything up to `low`."""
        low = self.low if low is None else max(low, self.low)
        above = [one for one in self.seen if one[1] > low]
        seen = merged([*above, *[(one, one) for one in positions if one > low]])
        guard = object.__new__(Guard)  # its values need no checks
        object.__setattr__(guard, "conditions", self.conditions)
        object.__setattr__(guard, "low", low)
        object.__setattr__(guard, "seen", seen)
        return guard

    def as_json(self) -> str:
        """Return the guard as JSON, in the form of the SQL functions."""
        conditions = _grouped(self.conditions)
        guard = {"conditions": conditions, "low": self.low, "seen": self.seen_ranges()}
        return msgspec.json.encode(guard).decode()

    def seen_ranges(self) -> str:
        """Return `seen` as the text of a PostgreSQL multirange."""
        return "{" + ",".join([f"[{first},{last}]" for first, last in self.seen]) + "}"


def ranges_of(positions: Iterable[int]) -> tuple[PositionRange, ...]:
    """Return the ranges of consecutive positions."""
    return merged([(one, one) for one in positions])


def merged(ranges: Iterable[PositionRange]) -> tuple[PositionRange, ...]:
    """Return ranges in order, with those that touch or overlap merged."""
    result: list[PositionRange] = []
    for first, last in sorted(ranges):
        if result and first <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(last, result[-1][1]))
        else:
            result.append((first, last))
    return tuple(result)


def grouped_json(conditions: Iterable[QueryCondition]) -> str:
    """Return one compound condition for each type, as JSON."""
    return msgspec.json.encode(_grouped(conditions)).decode()


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


def _tuple(name: str, several: Any) -> tuple[Any, ...]:
    if type(several) is tuple:
        return several
    if isinstance(several, str) or not isinstance(several, Iterable):
        raise ValidationError(name, several, "a list or another iterable")
    return tuple(several)


def _is_position(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 - 1


def _is_range(value: object) -> bool:
    if type(value) is not tuple or len(value) != 2:
        return False
    first, last = value
    return _is_position(first) and _is_position(last) and first <= last
