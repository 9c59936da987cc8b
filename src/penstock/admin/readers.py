"""Move and remove consumers and sessions, and read a store's health.

`penstock status` shows the figures of health, and gauges measure them. The figures and their cost
are described in `sql/penstock/60_health.sql`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.consumers.positions import KINDS, StreamPositions, TablePositions, check_edition
from penstock.database.operation import Operation, Row, call, only_value
from penstock.database.waiters import of_stream
from penstock.errors import ValidationError
from penstock.log.context import LogContext, check_position
from penstock.log.write import check_category
from penstock.message import check_text
from penstock.queues.operations import check_offset, stream_of

_SUBJECT = ("category", "stream_name", "group_id", "topic", "consumer_id", "pipeline", "processor")


@dataclass(frozen=True, slots=True)
class HealthFigure:
    """One figure of a store's health. Lags and ages are in seconds."""

    #: subject and measure, such as `consumer.lag` or `outbox.failed`
    name: str
    value: float
    #: the subject and other facts, such as the pid that holds the watermark back
    detail: Mapping[str, Any]

    @property
    def subject(self) -> dict[str, str]:
        """The subject: a consumer and its category, a group, a topic; empty for the store."""
        return {name: self.detail[name] for name in _SUBJECT if name in self.detail}


def health(context: LogContext) -> Operation[list[HealthFigure]]:
    """Read the figures, with index lookups only."""
    context.require_penstock("health")
    return call(
        "health",
        "select name, value, detail from penstock.health()",
        (),
        lambda rows: [HealthFigure(*row) for row in rows],
    )


def move_session(
    context: LogContext, queue: str, consumer_id: str, next_offset: int
) -> Operation[int]:
    """Move a queue's consumer, which fences its session; the result is its previous offset."""
    context.require_penstock("a queue's consumer")
    stream_name = stream_of(queue)
    check_text("consumer_id", consumer_id)
    check_offset("next_offset", next_offset)

    def decode(rows: list[Row]) -> int:
        before: int | None = rows[0][0]
        if before is None:
            expected = f"a consumer of the queue {queue}, as `sessions()` lists them"
            raise ValidationError("consumer_id", consumer_id, expected)
        return before

    return call(
        "move_session",
        "select penstock.move_session(%s, %s, %s)",
        (stream_name, consumer_id, next_offset),
        decode,
        notifies=frozenset([of_stream(stream_name)]),
        stream_name=stream_name,
        consumer_id=consumer_id,
    )


def remove_session(context: LogContext, queue: str, consumer_id: str) -> Operation[None]:
    """Remove a queue's consumer, which fences its session."""
    context.require_penstock("a queue's consumer")
    stream_name = stream_of(queue)
    check_text("consumer_id", consumer_id)
    expected = f"a consumer of the queue {queue}, as `sessions()` lists them"
    return call(
        "remove_session",
        "select penstock.remove_session(%s, %s)",
        (stream_name, consumer_id),
        lambda rows: _refuse_unknown(rows, consumer_id, expected),
        notifies=frozenset([of_stream(stream_name)]),
        stream_name=stream_name,
        consumer_id=consumer_id,
    )


def offset_since(context: LogContext, queue: str, moment: datetime) -> Operation[int]:
    """Read the offset of a queue's first record written at or after `moment`."""
    context.require_penstock("a queue's consumer")
    _check_moment(moment)
    return call(
        "offset_since",
        "select penstock.offset_since(%s, %s)",
        (stream_of(queue), moment),
        only_value,
    )


def move_consumer(
    context: LogContext, category: str, consumer_id: str, position: int, kept_in: str
) -> Operation[object]:
    """Move a consumer to just after `position`, forwards or back.

    A running consumer stops at its next save. When it is started again, it resumes there.
    """
    check_category(category)
    check_text("consumer_id", consumer_id)
    check_position("position", position)
    if not isinstance(kept_in, str) or kept_in not in KINDS:
        raise ValidationError("kept_in", kept_in, "'stream', 'table' or 'hybrid'")
    if kept_in == "stream":
        return StreamPositions(category, consumer_id).record(context, position)
    check_edition(context)
    return call(
        "move_consumer",
        "select penstock.set_position(%s, %s)",
        (TablePositions(category, consumer_id).key, position),
        lambda _: None,
    )


def remove_consumer(context: LogContext, category: str, consumer_id: str) -> Operation[None]:
    """Remove a consumer: its position, wherever it is kept, and its parked messages."""
    check_category(category)
    check_text("consumer_id", consumer_id)
    context.require_penstock("removing a consumer")
    expected = f"a consumer of {category} that has stored a position, as `consumers()` lists"
    return call(
        "remove_consumer",
        "select penstock.remove_consumer(%s, %s)",
        (category, consumer_id),
        lambda rows: _refuse_unknown(rows, consumer_id, expected),
        consumer_id=consumer_id,
    )


def _refuse_unknown(rows: list[Row], consumer_id: str, expected: str) -> None:
    if not only_value(rows):
        raise ValidationError("consumer_id", consumer_id, expected)


def end_of_log() -> Operation[int]:
    """Read the highest global position of all messages, 0 if there is none."""
    return call(
        "end_of_log",
        "select coalesce(max(global_position), 0) from message_store.messages",
        (),
        only_value,
    )


def position_before(context: LogContext, category: str, moment: datetime) -> Operation[int]:
    """Read the global position just before the first message written at or after `moment`."""
    check_category(category)
    _check_moment(moment)
    check_edition(context)
    return call(
        "position_before",
        "select penstock.position_before(%s, %s)",
        (category, moment),
        only_value,
    )


def _check_moment(moment: object) -> None:
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise ValidationError("moment", moment, "a datetime with a time zone")
