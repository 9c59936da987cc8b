"""Joins: what they are, and the operations on them.

The mechanism is in `41_joins.sql` and `42_join_waits.sql`. Steps are counted by themselves when
their messages are acknowledged or failed; reporting them by hand is for work that is done
elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString
from uuid import UUID

import msgspec

from penstock.database.operation import Operation, Row, call, only_value
from penstock.errors import PermanentFailure, ValidationError
from penstock.log.context import LogContext, is_whole
from penstock.message import as_uuid, check_text, new_id
from penstock.outbox import payload as payloads
from penstock.outbox.checks import as_interval, check_edition, check_limit, check_topic
from penstock.outbox.messages import ClaimedMessage, JoinId, OutboxMessageId
from penstock.outbox.payload import Payload

STATUSES = ("pending", "completed", "failed", "cancelled")

_COLUMNS = (
    "join_id, grouping_key, expected_steps, attached_steps, completed_steps, failed_steps,"
    " penstock.join_status(join_progress), metadata, penstock.readable_moment(times_out_at),"
    " wait_id, follow_up_id, penstock.readable_moment(created_at),"
    " penstock.readable_moment(updated_at)"
)

#: by the column, which is indexed, and then with the timeout: a pending join may have timed out
_WITH_STATUS: Mapping[str, LiteralString] = {
    "pending": " and status = 'pending' and penstock.join_status(join_progress) = 'pending'",
    "completed": " and status = 'completed'",
    "failed": " and status in ('failed', 'pending')"
    " and penstock.join_status(join_progress) = 'failed'",
    "cancelled": " and status = 'cancelled'",
}


@dataclass(frozen=True, slots=True)
class Join:
    """A join as it stands."""

    join_id: JoinId
    grouping_key: str | None
    expected_steps: int
    #: how many messages are members so far
    attached_steps: int
    completed_steps: int
    failed_steps: int
    status: str
    metadata: str | None
    times_out_at: datetime | None
    wait_id: OutboxMessageId | None
    #: the message that was enqueued when the join was resolved
    follow_up_id: OutboxMessageId | None
    created_at: datetime
    updated_at: datetime

    @property
    def is_complete(self) -> bool:
        """Whether every expected step has landed."""
        return self.completed_steps + self.failed_steps == self.expected_steps


@dataclass(frozen=True, slots=True)
class JoinMember:
    """A message in a join."""

    join_id: JoinId
    message_id: OutboxMessageId
    status: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Wait:
    """What a join.wait message says."""

    join_id: str
    fail_if_any_step_failed: bool = True
    on_complete_topic: str | None = None
    on_complete_payload: Any = None
    on_fail_topic: str | None = None
    on_fail_payload: Any = None


def start_join(
    context: LogContext,
    grouping_key: str | None,
    expected_steps: int,
    metadata: str | None,
    timeout: float | None,
) -> Operation[JoinId]:
    """Create a join; the result is its id."""
    check_edition(context)
    if grouping_key is not None:
        check_text("grouping_key", grouping_key)
    if metadata is not None:
        check_text("metadata", metadata)
    if not is_whole(expected_steps) or not 1 <= expected_steps < 2**31:
        raise ValidationError("expected_steps", expected_steps, "at least 1")
    return call(
        "start_join",
        "select penstock.start_join(%s, %s, %s, %s, %s)",
        (
            new_id(),
            grouping_key,
            expected_steps,
            metadata,
            None if timeout is None else as_interval("timeout", timeout),
        ),
        only_value,
        grouping_key=grouping_key,
    )


def attach(context: LogContext, join_id: UUID | str, message_id: UUID | str) -> Operation[None]:
    """Make a message a member of a join."""
    check_edition(context)
    return call(
        "attach_message_to_join",
        "select penstock.attach_to_joins(array[%s]::uuid[], array[%s]::uuid[])",
        (as_uuid(join_id), as_uuid(message_id)),
        lambda _: None,
    )


def report(
    context: LogContext, join_id: UUID | str, message_id: UUID | str, outcome: str
) -> Operation[None]:
    """Report a member as 'done' or 'failed'."""
    check_edition(context)
    return call(
        "report_step",
        "select penstock.report_step(%s, %s, %s)",
        (as_uuid(join_id), as_uuid(message_id), outcome),
        lambda _: None,
    )


def enqueue_wait(
    context: LogContext, join_id: UUID | str, wait: Wait
) -> Operation[OutboxMessageId]:
    """Enqueue the message that waits for a join."""
    check_edition(context)
    if not isinstance(wait.fail_if_any_step_failed, bool):
        raise ValidationError(
            "fail_if_any_step_failed", wait.fail_if_any_step_failed, "True or False"
        )
    if wait.on_complete_topic is None and wait.on_fail_topic is None:
        raise ValidationError("on_complete_topic", None, "a topic, unless on_fail_topic is given")
    for name in ("on_complete_topic", "on_fail_topic"):
        if getattr(wait, name) is not None:
            check_topic(name, getattr(wait, name))
    return call(
        "enqueue_join_wait",
        "select penstock.enqueue_join_wait(%s, %s, %s)",
        (new_id(), as_uuid(join_id), _encode_wait(wait)),
        only_value,
    )


def cancel(context: LogContext, join_id: UUID | str) -> Operation[bool]:
    """Cancel a join; the result is False if it was cancelled already."""
    check_edition(context)
    return call("cancel_join", "select penstock.cancel_join(%s)", (as_uuid(join_id),), only_value)


def get(context: LogContext, join_id: UUID | str) -> Operation[Join | None]:
    """Look up a join."""
    check_edition(context)
    return call(
        "get_join",
        f"select {_COLUMNS} from penstock.join_progress where join_id = %s",  # noqa: S608
        (as_uuid(join_id),),
        lambda rows: _join(rows[0]) if rows else None,
    )


def listing(
    context: LogContext, grouping_key: str | None, status: str | None, limit: int
) -> Operation[list[Join]]:
    """List joins, oldest first."""
    check_edition(context)
    if status is not None and status not in STATUSES:
        raise ValidationError("status", status, f"one of {', '.join(STATUSES)}")
    if grouping_key is not None:
        check_text("grouping_key", grouping_key)
    by_key: LiteralString = "" if grouping_key is None else " and grouping_key = %s"
    by_status: LiteralString = "" if status is None else _WITH_STATUS[status]
    return call(
        "list_joins",
        f"select {_COLUMNS} from penstock.join_progress"  # noqa: S608
        f" where true{by_key}{by_status} order by created_at, join_id limit %s",
        (*([] if grouping_key is None else [grouping_key]), check_limit(limit)),
        lambda rows: [_join(row) for row in rows],
    )


def members(context: LogContext, join_id: UUID | str) -> Operation[list[JoinMember]]:
    """List the members of a join."""
    check_edition(context)
    return call(
        "members",
        "select join_id, message_id, status, penstock.readable_moment(created_at)"
        " from penstock.join_members"
        " where join_id = %s order by created_at, message_id",
        (as_uuid(join_id),),
        lambda rows: [JoinMember(*row) for row in rows],
    )


def resolve(message: ClaimedMessage) -> Operation[str]:
    """Resolve the join that a claimed join.wait message waits for; the result is its status."""
    try:
        wait = msgspec.convert(message.payload, Wait)
        join_id = UUID(wait.join_id)
        on_complete = _follow_up(wait.on_complete_topic, wait.on_complete_payload)
        on_fail = _follow_up(wait.on_fail_topic, wait.on_fail_payload)
    except (ValueError, TypeError) as error:
        raise PermanentFailure(f"this is no wait for a join: {error}") from error
    return call(
        "resolve_join",
        "select penstock.resolve_join(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
        (
            message.id,
            message.token,
            join_id,
            wait.fail_if_any_step_failed,
            new_id(),
            *on_complete,
            *on_fail,
        ),
        only_value,
        join_id=wait.join_id,
    )


def _follow_up(topic: str | None, stored: Any) -> tuple[str | None, bytes, str]:
    payload, encoding = stored
    return topic, payload.encode("latin-1"), encoding


def _encode_wait(wait: Wait) -> bytes:
    """Keep each payload as its bytes and how to read them, so that it comes out as it went in."""
    return msgspec.json.encode(
        {
            "join_id": wait.join_id,
            "fail_if_any_step_failed": wait.fail_if_any_step_failed,
            "on_complete_topic": wait.on_complete_topic,
            "on_complete_payload": _kept("on_complete_payload", wait.on_complete_payload),
            "on_fail_topic": wait.on_fail_topic,
            "on_fail_payload": _kept("on_fail_payload", wait.on_fail_payload),
        }
    )


def _kept(name: str, payload: Payload) -> list[str]:
    encoded, encoding = payloads.encode(payload, name)
    return [encoded.decode("latin-1"), encoding]


def _join(row: Row) -> Join:
    return Join(*row)
