"""What the arguments of the outbox and of joins must be."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from penstock.errors import ValidationError
from penstock.log.context import LogContext, check_position
from penstock.message import check_text

#: the topic of messages that wait for a join, which dispatchers resolve
WAIT_TOPIC = "join.wait"

_LONGEST = 10 * 366 * 86_400  # seconds
#: what Python can hold in any time zone
_EARLIEST = datetime(1, 1, 2, tzinfo=UTC)
_LATEST = datetime(9999, 12, 30, tzinfo=UTC)

Item = TypeVar("Item")


def as_interval(name: str, seconds: float, lowest: float = 0.001) -> timedelta:
    """Return a checked number of seconds."""
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not lowest <= seconds <= _LONGEST:
        raise ValidationError(name, seconds, f"{lowest:g} seconds or more, and up to ten years")
    return timedelta(seconds=seconds)


def check_due(due: datetime | None) -> datetime | None:
    """Return a checked moment from which a message is due."""
    if due is None:
        return None
    if not isinstance(due, datetime) or due.utcoffset() is None:
        raise ValidationError("due", due, "a datetime with a time zone")
    if not _EARLIEST <= due <= _LATEST:
        raise ValidationError("due", due, "from the year 1 to the year 9999, in any time zone")
    return due


def listed(name: str, several: Iterable[Item]) -> list[Item]:
    """Return several things as a list; refuse one alone."""
    if isinstance(several, str | bytes) or not isinstance(several, Iterable):
        raise ValidationError(name, several, "several, such as a list of them")
    return list(several)


def check_topic(name: str, topic: str) -> str:
    """Return a checked topic for a message."""
    if check_text(name, topic) == WAIT_TOPIC:
        raise ValidationError(name, topic, "another topic: enqueue_join_wait makes such messages")
    return topic


def check_limit(limit: int) -> int:
    """Return a checked limit."""
    if check_position("limit", limit, 1) >= 2**31:
        raise ValidationError("limit", limit, "less than 2,147,483,648")
    return limit


def check_edition(context: LogContext) -> None:
    """Refuse a database without Penstock's schema."""
    context.require_penstock("the outbox")
