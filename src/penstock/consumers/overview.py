"""Which consumers there are, how far behind they are, and how to move one: for operators."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from penstock.consumers.positions import KINDS, StreamPositions, TablePositions, check_edition
from penstock.database.operation import Operation, call, only_value
from penstock.errors import ValidationError
from penstock.log.context import LogContext, check_position
from penstock.log.write import check_category
from penstock.message import check_text


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
    #: when the first message after the position was written; None if nothing waits
    oldest_waiting: datetime | None

    @property
    def seconds_behind(self) -> float:
        """How long the first waiting message has been waiting."""
        if self.oldest_waiting is None:
            return 0.0
        return max(0.0, (datetime.now(UTC) - self.oldest_waiting).total_seconds())


def consumers(context: LogContext, count_up_to: int = 10_000) -> Operation[list[ConsumerStatus]]:
    """List every consumer that has stored a position."""
    check_position("count_up_to", count_up_to)
    context.require_penstock("listing consumers")
    return call(
        "consumers",
        "select * from penstock.consumers(%s)",
        (count_up_to,),
        lambda rows: [ConsumerStatus(*row) for row in rows],
    )


def move_consumer(
    context: LogContext, category: str, consumer_id: str, position: int, kept_in: str
) -> Operation[object]:
    """Put a consumer right after `position`, whatever its position was.

    A running consumer notices at its next save and stops; started again, it goes on from there.
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


def end_of_log() -> Operation[int]:
    """Look up the highest global position that a message has, 0 if there is none."""
    return call(
        "end_of_log",
        "select coalesce(max(global_position), 0) from message_store.messages",
        (),
        only_value,
    )


def refuse_beyond(end: int, position: int) -> None:
    """Refuse to put a consumer where it would pass over messages that are still to be written."""
    if position > end:
        raise ValidationError("position", position, f"{end}, the end of the log, or less")


def position_before(context: LogContext, category: str, moment: datetime) -> Operation[int]:
    """Look up the global position right before the first message written at or after `moment`."""
    check_category(category)
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise ValidationError("moment", moment, "a datetime with a time zone")
    check_edition(context)
    return call(
        "position_before",
        "select penstock.position_before(%s, %s)",
        (category, moment),
        lambda rows: rows[0][0],
    )
