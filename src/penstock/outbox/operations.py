"""The operations on outbox messages.

The mechanism is described in `sql/penstock/40_outbox.sql`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import LiteralString
from uuid import UUID

from penstock.database.arrays import text_array
from penstock.database.operation import Operation, call, only_value
from penstock.errors import ValidationError
from penstock.log.context import LogContext, check_position
from penstock.loops.durations import YEAR, Duration, seconds
from penstock.loops.failure_policy import kept_error
from penstock.message import as_uuid, check_text
from penstock.outbox.messages import (
    COLUMNS,
    STATES,
    ClaimedMessage,
    CleanedUp,
    NewMessage,
    OutboxMessage,
    OutboxMessageId,
    TopicState,
    UnhandledTopic,
    as_claimed,
    as_message,
    as_row,
    listed,
)

# seconds
SHORTEST_LEASE = 0.001
LONGEST_LEASE = 10 * YEAR
LONGEST_AGE = 1000 * YEAR

#: written out, so that the planner can use the indexes of one state
_IN_STATE: Mapping[str, LiteralString] = {
    "ready": " and state = 'ready'",
    "in_progress": " and state = 'in_progress'",
    "done": " and state = 'done'",
    "failed": " and state = 'failed'",
}


def enqueue(
    context: LogContext, messages: Iterable[NewMessage], joins: Iterable[UUID | str] = ()
) -> Operation[list[OutboxMessageId]]:
    """Put messages into the outbox; the result is their ids."""
    check_edition(context)
    checked = [as_row(one) for one in listed("messages", messages)]
    if not checked:
        raise ValidationError("messages", checked, "at least one message")
    columns = [list(column) for column in zip(*checked, strict=True)]
    return call(
        "enqueue",
        "select penstock.enqueue(%s::uuid[], %s::text[], %s::bytea[], %s::text[],"
        " %s::timestamptz[], %s::text[], %s::text[], %s::uuid[])",
        (*columns, [as_uuid(one) for one in listed("joins", joins)]),
        only_value,
        count=len(checked),
    )


def claim(
    context: LogContext,
    owner: str,
    limit: int,
    lease: Duration,
    topics: Iterable[str] | None = None,
    start: tuple[datetime | None, UUID | None] = (None, None),
) -> Operation[list[ClaimedMessage]]:
    """Claim due messages, oldest first, of these topics or of all; from (due, id) `start` on."""
    check_edition(context)
    check_text("owner", owner)
    check_limit(limit)
    return call(
        "claim",
        "select * from penstock.claim_outbox(%s, %s::text[], %s, %s, %s, %s)",
        (owner, _checked_topics(topics), limit, as_interval("lease", lease), *start),
        lambda rows: sorted((as_claimed(row) for row in rows), key=lambda one: (one.due, one.id)),
        owner=owner,
        from_start=start[0] is None,
    )


def _checked_topics(topics: Iterable[str] | None) -> str | None:
    if topics is None:
        return None
    checked = [check_text("topic", one) for one in listed("topics", topics)]
    if not checked:
        raise ValidationError("topics", checked, "at least one topic, or None for all")
    return text_array(checked)


def report_unhandled(
    context: LogContext, owner: str, topics: Iterable[str], overdue: float
) -> Operation[list[UnhandledTopic]]:
    """Find the topics, other than these, with messages due for longer than `overdue` seconds."""
    return call(
        "report_unhandled",
        "select * from penstock.report_unhandled(%s::text[], %s, %s)",
        (text_array(list(topics)), owner, as_interval("overdue", overdue, least=0)),
        lambda rows: [UnhandledTopic(*row) for row in rows],
        owner=owner,
    )


def finish(
    ids: Sequence[UUID], token: UUID, outcome: str, error: str | None = None
) -> Operation[list[OutboxMessageId]]:
    """Finish messages as 'done' or 'failed'; the result is the ids whose leases had ended."""
    return call(
        "ack" if outcome == "done" else "fail",
        "select penstock.finish_outbox(%s::uuid[], %s, %s, %s)",
        (list(ids), token, outcome, None if outcome == "done" else kept_error(error)),
        only_value,
        count=len(ids),
    )


def abandon(
    ids: Sequence[UUID], token: UUID, delay: Duration, error: str | None
) -> Operation[list[OutboxMessageId]]:
    """Give messages back; the result is the ids whose leases had ended."""
    kept = None if error is None else kept_error(error)
    return call(
        "abandon",
        "select penstock.abandon_outbox(%s::uuid[], %s, %s, %s)",
        (list(ids), token, as_interval("delay", delay, least=0), kept),
        only_value,
        count=len(ids),
    )


def give_back(ids: Sequence[UUID], token: UUID) -> Operation[list[OutboxMessageId]]:
    """Give messages back without an attempt used; the result is the ids whose leases had ended."""
    return call(
        "abandon",
        "select penstock.abandon_outbox(%s::uuid[], %s, null, null, false)",
        (list(ids), token),
        only_value,
        count=len(ids),
    )


def extend(ids: Sequence[UUID], token: UUID, lease: Duration) -> Operation[list[OutboxMessageId]]:
    """Hold messages for another lease; the result is the ids whose leases had ended."""
    return call(
        "extend",
        "select penstock.extend_outbox(%s::uuid[], %s, %s)",
        (list(ids), token, as_interval("lease", lease)),
        only_value,
        count=len(ids),
    )


def reap(context: LogContext) -> Operation[int]:
    """Make messages ready whose lease has ended."""
    check_edition(context)
    return call("reap_expired", "select penstock.reap_outbox()", (), only_value)


def get(context: LogContext, id: UUID | str) -> Operation[OutboxMessage | None]:
    """Look up one message."""
    check_edition(context)
    return call(
        "get",
        f"select {COLUMNS} from penstock.outbox where id = %s",  # noqa: S608
        (as_uuid(id),),
        lambda rows: as_message(rows[0]) if rows else None,
    )


def listing(
    context: LogContext,
    topic: str | None,
    state: str | None,
    limit: int,
) -> Operation[list[OutboxMessage]]:
    """List messages, oldest first."""
    check_edition(context)
    if state is not None and state not in STATES:
        raise ValidationError("state", state, f"one of {', '.join(STATES)}")
    if topic is not None:
        check_text("topic", topic)
    by_topic: LiteralString = "" if topic is None else " and topic = %s"
    by_state: LiteralString = "" if state is None else _IN_STATE[state]
    return call(
        "list",
        f"select {COLUMNS} from penstock.outbox where true{by_topic}{by_state}"  # noqa: S608
        " order by created_at, id limit %s",
        (*([] if topic is None else [topic]), check_limit(limit)),
        lambda rows: [as_message(row) for row in rows],
    )


def retry_failed(
    context: LogContext, ids: Sequence[UUID | str] | None, topic: str | None
) -> Operation[int]:
    """Make failed messages ready again."""
    check_edition(context)
    if topic is not None:
        check_text("topic", topic)
    wanted = None if ids is None else [as_uuid(one) for one in listed("ids", ids)]
    return call(
        "retry_failed", "select penstock.retry_outbox(%s::uuid[], %s)", (wanted, topic), only_value
    )


def clean_up(
    context: LogContext, older_than: Duration, batch_size: int, failed: bool
) -> Operation[CleanedUp]:
    """Remove a batch of finished messages and of finished joins."""
    check_edition(context)
    age = timedelta(seconds=seconds("older_than", older_than, most=LONGEST_AGE))
    if not isinstance(failed, bool):
        raise ValidationError("failed", failed, "True or False")
    return call(
        "clean_up",
        "select penstock.clean_outbox(b.before, %s, %s), penstock.clean_joins(b.before, %s)"
        " from (values (clock_timestamp() - %s)) as b(before)",
        (check_limit(batch_size, "batch_size"), failed, batch_size, age),
        lambda rows: CleanedUp(*rows[0]),
    )


def summary(context: LogContext) -> Operation[list[TopicState]]:
    """Count messages by topic and state."""
    check_edition(context)
    return call(
        "outbox_summary",
        "select * from penstock.outbox_summary()",
        (),
        lambda rows: [TopicState(*row) for row in rows],
    )


def as_interval(name: str, duration: Duration, least: float = SHORTEST_LEASE) -> timedelta:
    """Return a checked duration, as psycopg sends it."""
    return timedelta(seconds=seconds(name, duration, least=least, most=LONGEST_LEASE))


def check_limit(limit: int, name: str = "limit") -> int:
    """Return a checked limit."""
    if check_position(name, limit, 1) >= 2**31:
        raise ValidationError(name, limit, "less than 2,147,483,648")
    return limit


def check_edition(context: LogContext) -> None:
    """Refuse a database without Penstock's schema."""
    context.require_penstock("the outbox")
