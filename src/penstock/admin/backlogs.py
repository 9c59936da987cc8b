"""Consumers and sessions with their positions and backlogs.

`store.admin`, `penstock consumers` and the console read them here. A list comes in pages, by
category or queue and by id; a backlog is counted up to a limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

from penstock.database.operation import Operation, Row, call
from penstock.errors import ValidationError
from penstock.log.context import LogContext, check_position, is_whole
from penstock.log.write import check_category
from penstock.message import check_text
from penstock.queues.operations import queue_of, stream_of

#: before the first
START = ("", "")
_CONSUMERS: LiteralString = (
    "select category, consumer_id, kept_in, position, updated_at, head, behind, oldest_waiting,"
    " clock_timestamp(), parked, parked_at_least, last_error"
    " from penstock.consumers(%s, %s, %s, %s, %s, %s)"
)
_SESSIONS: LiteralString = (
    "select stream_name, consumer_id, next_offset, tail, behind, oldest_waiting, updated_at,"
    " clock_timestamp() from penstock.list_sessions(%s, %s, %s, %s, %s, %s)"
)


@dataclass(frozen=True, slots=True)
class ConsumerStatus:
    """One consumer, its stored position and its backlog."""

    category: str
    consumer_id: str
    kept_in: str
    position: int | None
    updated_at: datetime
    head: int
    #: messages after the position; counted up to a limit
    behind: int
    #: when the first message after the position was written; None if there is none
    oldest_waiting: datetime | None
    #: when the status was read, by the server's clock
    as_of: datetime
    #: its parked messages, by the last 1,000 entries of their stream
    parked: int
    #: whether more may be parked
    parked_at_least: bool
    #: of the newest parked message
    last_error: str | None

    @property
    def seconds_behind(self) -> float:
        """The seconds that the first message after the position has waited."""
        return _seconds(self.oldest_waiting, self.as_of)


@dataclass(frozen=True, slots=True)
class SessionStatus:
    """One consumer of a queue, its stored offset and its backlog."""

    queue: str
    consumer_id: str
    #: the offset of the next record to read
    next_offset: int
    #: the offset that the queue's next record will get
    tail: int
    #: records from the offset on; counted up to a limit
    behind: int
    #: when the first of them was written; None if there is none
    oldest_waiting: datetime | None
    updated_at: datetime
    #: when the status was read, by the server's clock
    as_of: datetime

    @property
    def seconds_behind(self) -> float:
        """The seconds that the next record has waited."""
        return _seconds(self.oldest_waiting, self.as_of)


def _seconds(since: datetime | None, until: datetime) -> float:
    return 0.0 if since is None else max(0.0, (until - since).total_seconds())


def consumers(
    context: LogContext, count_up_to: int, after: tuple[str, str], limit: int
) -> Operation[list[ConsumerStatus]]:
    """List consumers that have stored a position, after a category and id."""
    context.require_penstock("listing consumers")
    arguments = (*_page("category", count_up_to, after, limit), None, None)
    return call(
        "consumers",
        _CONSUMERS,
        arguments,
        lambda rows: [ConsumerStatus(*row) for row in rows],
    )


def consumer(
    context: LogContext, category: str, consumer_id: str, count_up_to: int
) -> Operation[ConsumerStatus | None]:
    """Read one consumer, None if it has stored no position."""
    context.require_penstock("listing consumers")
    check_category(category)
    check_text("consumer_id", consumer_id)
    check_position("count_up_to", count_up_to)
    return call(
        "consumer",
        _CONSUMERS,
        (count_up_to, *START, 1, category, consumer_id),
        lambda rows: ConsumerStatus(*rows[0]) if rows else None,
    )


def sessions(
    context: LogContext, count_up_to: int, after: tuple[str, str], limit: int
) -> Operation[list[SessionStatus]]:
    """List consumers of queues, after a queue and id."""
    context.require_penstock("listing sessions")
    most, queue, consumer_id, limit = _page("queue", count_up_to, after, limit)
    arguments = (most, stream_of(queue) if queue else "", consumer_id, limit, None, None)
    return call("sessions", _SESSIONS, arguments, lambda rows: [_session(row) for row in rows])


def session(
    context: LogContext, queue: str, consumer_id: str, count_up_to: int
) -> Operation[SessionStatus | None]:
    """Read one consumer of a queue, None if there is none."""
    context.require_penstock("listing sessions")
    stream_name = stream_of(queue)
    check_text("consumer_id", consumer_id)
    check_position("count_up_to", count_up_to)
    return call(
        "session",
        _SESSIONS,
        (count_up_to, *START, 1, stream_name, consumer_id),
        lambda rows: _session(rows[0]) if rows else None,
    )


def _session(row: Row) -> SessionStatus:
    return SessionStatus(queue_of(row[0]), *row[1:])


def _page(
    first: str, count_up_to: int, after: tuple[str, str], limit: int
) -> tuple[Any, str, str, int]:
    check_position("count_up_to", count_up_to)
    if not is_whole(limit) or limit < 1:
        raise ValidationError("limit", limit, "at least 1")
    if not isinstance(after, tuple) or len(after) != 2:
        raise ValidationError("after", after, f"a {first} and a consumer_id")
    for one in after:
        if one != "":
            check_text("after", one)
    return count_up_to, *after, limit
