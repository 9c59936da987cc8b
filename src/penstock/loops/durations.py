"""Durations: a number of seconds or a `timedelta`, wherever a call takes one."""

from __future__ import annotations

import re
from datetime import timedelta

from penstock.errors import ValidationError

Duration = float | timedelta

YEAR = 366 * 86_400.0  # seconds
_TEXT = re.compile(r"(\d{1,9}(?:\.\d{1,6})?) ?(s|min|h|d|w)")
_UNITS = {"s": "seconds", "min": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_duration(text: str) -> timedelta | None:
    """Return a duration that is given as a number with a unit: 90d, 12h, 30min; None if not."""
    found = _TEXT.fullmatch(text.strip())
    return timedelta(**{_UNITS[found[2]]: float(found[1])}) if found else None


def seconds(name: str, value: Duration, *, least: float = 0.0, most: float = YEAR) -> float:
    """Return a duration in seconds; refuse one that is not between `least` and `most`."""
    length = value.total_seconds() if isinstance(value, timedelta) else value
    is_number = isinstance(length, int | float) and not isinstance(length, bool)
    if not is_number or not least <= length <= most:
        limits = f"between {least:g} and {most:,.0f} seconds"
        if most == float("inf"):
            limits = f"of {least:g} seconds or more"
        raise ValidationError(name, value, f"seconds or a timedelta, {limits}")
    return length


def shown_age(age: timedelta) -> str:
    """Return a duration in its two largest units."""
    seconds = int(age.total_seconds())
    for unit, size, smaller, smaller_size in _LARGEST_UNITS:
        if seconds >= size:
            rest = seconds % size // smaller_size
            return f"{seconds // size} {unit} {rest} {smaller}"
    return f"{seconds} s"


_LARGEST_UNITS = (("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60), ("min", 60, "s", 1))
