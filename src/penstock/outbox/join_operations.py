"""Joins, and the operations on them.

The mechanism is described in `sql/penstock/41_joins.sql`. A step counts when its message is
acknowledged or failed; reporting it by hand is for work that is done elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString
from uuid import UUID

import msgspec

from penstock.database.operation import Operation, call, only_value
from penstock.database.waiters import of_topic
from penstock.errors import PermanentFailure, ValidationError
from penstock.loops.durations import Duration
from penstock.message import as_uuid, check_text, new_id
from penstock.outbox.messages import (
    WAIT_TOPIC,
    ClaimedMessage,
    JoinId,
    OutboxMessageId,
    Payload,
    check_topic,
    encode_payload,
)
from penstock.outbox.operations import as_interval, check_limit

#: the topic of a message that follows a join, if any, and its payload
FollowUp = tuple[str | None, Payload]

#: whom to wake when a join may have its last step
_WAIT = frozenset([of_topic(WAIT_TOPIC)])

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
    """A join and its counters."""

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


class Wait(msgspec.Struct, kw_only=True):
    """The payload of a join.wait message."""

    join_id: UUID
    fail_if_any_step_failed: bool = True
    on_complete_topic: str | None = None
    #: its bytes and how to read them, so that it comes out as it went in
    on_complete_payload: tuple[str, str]
    on_fail_topic: str | None = None
    on_fail_payload: tuple[str, str]


def start(
    grouping_key: str | None, expected_steps: int, metadata: str | None, timeout: Duration | None
) -> Operation[JoinId]:
    """Create a join; the result is its id."""
    for name, text in (("grouping_key", grouping_key), ("metadata", metadata)):
        if text is not None:
            check_text(name, text)
    check_limit(expected_steps, "expected_steps")
    times_out_after = None if timeout is None else as_interval("timeout", timeout)
    return call(
        "start_join",
        "select penstock.start_join(%s, %s, %s, %s, %s)",
        (new_id(), grouping_key, expected_steps, metadata, times_out_after),
        only_value,
        grouping_key=grouping_key,
    )


def attach(join_id: UUID | str, message_id: UUID | str) -> Operation[None]:
    """Make a message a member of a join."""
    return call(
        "attach_message_to_join",
        "select penstock.attach_to_joins(array[%s]::uuid[], array[%s]::uuid[])",
        (as_uuid(join_id), as_uuid(message_id)),
        lambda _: None,
        notifies=_WAIT,
    )


def report(join_id: UUID | str, message_id: UUID | str, outcome: str) -> Operation[None]:
    """Report a member as 'done' or 'failed'."""
    return call(
        "report_step",
        "select penstock.report_step(%s, %s, %s)",
        (as_uuid(join_id), as_uuid(message_id), outcome),
        lambda _: None,
        notifies=_WAIT,
    )


def enqueue_wait(
    join_id: UUID | str, fail_if_any_step_failed: bool, on_complete: FollowUp, on_fail: FollowUp
) -> Operation[OutboxMessageId]:
    """Enqueue the message that waits for a join."""
    if not isinstance(fail_if_any_step_failed, bool):
        raise ValidationError("fail_if_any_step_failed", fail_if_any_step_failed, "True or False")
    if on_complete[0] is None and on_fail[0] is None:
        raise ValidationError("on_complete_topic", None, "a topic, unless on_fail_topic is given")
    wait: dict[str, Any] = {
        "join_id": as_uuid(join_id),
        "fail_if_any_step_failed": fail_if_any_step_failed,
    }
    for name, (topic, payload) in (("on_complete", on_complete), ("on_fail", on_fail)):
        wait[f"{name}_topic"] = None if topic is None else check_topic(f"{name}_topic", topic)
        encoded, encoding = encode_payload(payload, f"{name}_payload")
        wait[f"{name}_payload"] = encoded.decode("latin-1"), encoding
    return call(
        "enqueue_join_wait",
        "select penstock.enqueue_join_wait(%s, %s, %s)",
        (new_id(), wait["join_id"], msgspec.json.encode(wait)),
        only_value,
        notifies=_WAIT,
    )


def resolve(message: ClaimedMessage) -> Operation[str]:
    """Resolve the join that a claimed join.wait message waits for; the result is its status."""
    try:
        wait = msgspec.convert(message.payload, Wait)
        on_complete, on_fail = (
            (payload.encode("latin-1"), encoding)
            for payload, encoding in (wait.on_complete_payload, wait.on_fail_payload)
        )
    except ValueError as error:
        raise PermanentFailure(f"this is no wait for a join: {error}") from error
    return call(
        "resolve_join",
        "select penstock.resolve_join(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
        (
            message.id,
            message.token,
            wait.join_id,
            wait.fail_if_any_step_failed,
            new_id(),
            wait.on_complete_topic,
            *on_complete,
            wait.on_fail_topic,
            *on_fail,
        ),
        only_value,
        notifies=frozenset(
            of_topic(one) for one in (wait.on_complete_topic, wait.on_fail_topic) if one is not None
        ),
        join_id=str(wait.join_id),
    )


def cancel(join_id: UUID | str) -> Operation[bool]:
    """Cancel a join; the result is False if it was cancelled already."""
    sql: LiteralString = "select penstock.cancel_join(%s)"
    return call("cancel_join", sql, (as_uuid(join_id),), only_value, notifies=_WAIT)


def get(join_id: UUID | str) -> Operation[Join | None]:
    """Look up a join."""
    return call(
        "get_join",
        f"select {_COLUMNS} from penstock.join_progress where join_id = %s",  # noqa: S608
        (as_uuid(join_id),),
        lambda rows: Join(*rows[0]) if rows else None,
    )


def listing(grouping_key: str | None, status: str | None, limit: int) -> Operation[list[Join]]:
    """List joins, oldest first."""
    if status is not None and status not in tuple(_WITH_STATUS):
        raise ValidationError("status", status, f"one of {', '.join(_WITH_STATUS)}")
    by_key: LiteralString = "" if grouping_key is None else " and grouping_key = %s"
    by_status: LiteralString = "" if status is None else _WITH_STATUS[status]
    keys = [] if grouping_key is None else [check_text("grouping_key", grouping_key)]
    return call(
        "list_joins",
        f"select {_COLUMNS} from penstock.join_progress"  # noqa: S608
        f" where true{by_key}{by_status} order by created_at, join_id limit %s",
        (*keys, check_limit(limit)),
        lambda rows: [Join(*row) for row in rows],
    )


def members(join_id: UUID | str) -> Operation[list[JoinMember]]:
    """List the members of a join."""
    return call(
        "members",
        "select join_id, message_id, status, penstock.readable_moment(created_at)"
        " from penstock.join_members where join_id = %s order by created_at, message_id",
        (as_uuid(join_id),),
        lambda rows: [JoinMember(*row) for row in rows],
    )
