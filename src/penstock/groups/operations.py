"""Operations on consumer groups: create, stop, start, reset and list them.

The mechanism is described in `sql/penstock/33_groups.sql`; operations on claims are in `claims.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString

from penstock.database.operation import Operation, call, only_value
from penstock.log.context import LogContext
from penstock.message import check_text


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """The state of a group."""

    group_id: str
    status: str
    partition_by: list[str] | None
    partitions: int
    pending: int
    claimed: int
    parked: int
    routed_to: int
    oldest_pending: datetime | None


@dataclass(frozen=True, slots=True)
class ParkedPartition:
    """A partition that is not claimed any more, after too many failures, until it is resumed."""

    group_id: str
    partition_key: str
    attempts: int
    error: str | None
    parked_at: datetime


def register(context: LogContext, group_id: str) -> Operation[None]:
    """Create a group, active; nothing if it exists."""
    return _group_call(
        context, "register_consumer_group", group_id, "select penstock.register_consumer_group(%s)"
    )


def is_active(context: LogContext, group_id: str) -> Operation[bool]:
    """Whether the group exists and is active."""
    check_group(context, group_id)
    return call(
        "consumer_group_active",
        "select penstock.consumer_group_active(%s)",
        (group_id,),
        only_value,
        group_id=group_id,
    )


def stop(context: LogContext, group_id: str) -> Operation[None]:
    """Give out no more claims."""
    return _group_call(
        context,
        "stop_consumer_group",
        group_id,
        "select penstock.set_consumer_group_status(%s, 'stopped')",
    )


def start(context: LogContext, group_id: str) -> Operation[None]:
    """Give out claims again."""
    return _group_call(
        context,
        "start_consumer_group",
        group_id,
        "select penstock.set_consumer_group_status(%s, 'active')",
    )


def reset(context: LogContext, group_id: str) -> Operation[None]:
    """Delete all offsets."""
    return _group_call(
        context, "reset_consumer_group", group_id, "select penstock.reset_consumer_group(%s)"
    )


def clear(context: LogContext) -> Operation[None]:
    """Delete all groups."""
    return call(
        "clear_consumer_groups", "select penstock.clear_consumer_groups()", (), lambda _: None
    )


def resume(context: LogContext, group_id: str, partition_key: str | None = None) -> Operation[int]:
    """Resume parked partitions."""
    check_group(context, group_id)
    if partition_key is not None:
        check_text("partition_key", partition_key)
    return call(
        "resume_partitions",
        "select penstock.resume_partitions(%s, %s)",
        (group_id, partition_key),
        only_value,
        group_id=group_id,
    )


def listing(context: LogContext) -> Operation[list[GroupStatus]]:
    """List all groups."""
    check_group(context, "groups")
    return call(
        "groups",
        "select * from penstock.groups()",
        (),
        lambda rows: [GroupStatus(*row) for row in rows],
    )


def parked(context: LogContext, group_id: str) -> Operation[list[ParkedPartition]]:
    """List the parked partitions of a group."""
    check_group(context, group_id)
    return call(
        "parked_partitions",
        "select g.group_id, p.partition_key, s.attempts, s.error, s.parked_at"
        " from penstock.find_group(%s) g"
        " join penstock.partition_states s on s.group_pk = g.id and s.parked_at is not null"
        " join penstock.partitions p on p.offset_id = s.offset_id order by s.parked_at",
        (group_id,),
        lambda rows: [ParkedPartition(*row) for row in rows],
        group_id=group_id,
    )


def check_group(context: LogContext, group_id: str) -> None:
    """Refuse an invalid name, and a database that has no groups."""
    check_text("group_id", group_id)
    context.require_penstock("a consumer group")


def _group_call(
    context: LogContext, name: str, group_id: str, sql: LiteralString
) -> Operation[None]:
    check_group(context, group_id)
    return call(name, sql, (group_id,), lambda _: None, group_id=group_id)
