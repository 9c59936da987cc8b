"""Durations: a number of seconds or a `timedelta`, wherever a call takes one."""

from __future__ import annotations

from datetime import timedelta

from penstock.errors import ValidationError

Duration = float | timedelta

YEAR = 366 * 86_400.0  # seconds


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
