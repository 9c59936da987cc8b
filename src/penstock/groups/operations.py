"""Operations on consumer groups: create, stop, start, reset, remove and list them.

The mechanism is described in `sql/penstock/33_groups.sql`; operations on claims are in `claims.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString, NamedTuple, TypeVar

from penstock.database.operation import Operation, Row, call, only_value
from penstock.database.waiters import of_group
from penstock.errors import ValidationError
from penstock.log.context import LogContext, check_position, is_whole
from penstock.message import check_text

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """The state of a group. Partitions are counted up to a limit."""

    group_id: str
    #: active or stopped
    status: str
    partition_by: list[str] | None
    handled_types: list[str]
    partitions: int
    #: those that have unhandled messages and are not parked
    pending: int
    claimed: int
    parked: int
    routed_to: int
    #: when the first unhandled message of a partition that is not parked was written
    oldest_pending: datetime | None
    created_at: datetime
    #: when the status was read, by the server's clock
    as_of: datetime

    @property
    def seconds_behind(self) -> float:
        """The seconds that the first unhandled message has waited."""
        if self.oldest_pending is None:
            return 0.0
        return max(0.0, (self.as_of - self.oldest_pending).total_seconds())


@dataclass(frozen=True, slots=True)
class ParkedPartition:
    """A partition that is not claimed any more, after too many failures, until it is resumed."""

    group_id: str
    partition_key: str
    attempts: int
    error: str | None
    parked_at: datetime


class Leftover(NamedTuple):
    """Where to continue to delete the rows of a removed group; all None at first and at the end."""

    group_pk: int | None = None
    from_table: str | None = None
    feed: int | None = None
    place: int | None = None


#: the SQL of the operations on one group, by their names
_SQL: dict[str, LiteralString] = {
    "register_consumer_group": "select penstock.register_consumer_group(%s)",
    "stop_consumer_group": "select penstock.set_consumer_group_status(%s, 'stopped')",
    "start_consumer_group": "select penstock.set_consumer_group_status(%s, 'active')",
    "reset_consumer_group": "select penstock.reset_consumer_group(%s)",
    "remove_consumer_group": "select penstock.remove_consumer_group(%s)",
    "consumer_group_active": "select penstock.consumer_group_active(%s)",
    "resume_partitions": "select penstock.resume_partitions(%s, %s)",
    "parked_partitions": "select g.group_id, p.partition_key, s.attempts, s.error, s.parked_at"
    " from penstock.find_group(%s) g"
    " join penstock.partition_states s on s.group_pk = g.id and s.parked_at is not null"
    " join penstock.partitions p on p.offset_id = s.offset_id order by s.parked_at",
}

_STATUS: LiteralString = "select *, clock_timestamp() from penstock.groups(%s, %s, %s, %s)"

#: those of them after which partitions may be ready
_MAKE_READY = ("start_consumer_group", "reset_consumer_group", "resume_partitions")


def change(context: LogContext, name: str, group_id: str) -> Operation[None]:
    """Register, stop, start, reset or remove a group: the operation of this name."""
    return _on_group(context, name, lambda _: None, group_id)


def is_active(context: LogContext, group_id: str) -> Operation[bool]:
    """Whether the group exists and is active."""
    return _on_group(context, "consumer_group_active", only_value, group_id)


def delete_leftover(leftover: Leftover, batch_size: int) -> Operation[Leftover]:
    """Delete the next rows of groups that were removed."""
    return call(
        "delete_removed_group",
        "select * from penstock.delete_removed_group(%s, %s, %s, %s, %s)",
        (*leftover, batch_size),
        lambda rows: Leftover(*rows[0]),
    )


def clear() -> Operation[None]:
    """Delete all groups."""
    return call(
        "clear_consumer_groups", "select penstock.clear_consumer_groups()", (), lambda _: None
    )


def resume(context: LogContext, group_id: str, partition_key: str | None = None) -> Operation[int]:
    """Resume parked partitions."""
    if partition_key is not None:
        check_text("partition_key", partition_key)
    return _on_group(context, "resume_partitions", only_value, group_id, partition_key)


def listing(
    context: LogContext, count_up_to: int, after: str, limit: int
) -> Operation[list[GroupStatus]]:
    """List groups by their ids, after one."""
    context.require_penstock("a consumer group")
    check_position("count_up_to", count_up_to)
    if after != "":
        check_text("after", after)
    if not is_whole(limit) or limit < 1:
        raise ValidationError("limit", limit, "at least 1")
    arguments = (count_up_to, after, limit, None)
    return call("groups", _STATUS, arguments, lambda rows: [GroupStatus(*row) for row in rows])


def one(context: LogContext, group_id: str, count_up_to: int) -> Operation[GroupStatus | None]:
    """Read one group, None if there is none."""
    context.require_penstock("a consumer group")
    check_text("group_id", group_id)
    check_position("count_up_to", count_up_to)
    return call(
        "group",
        _STATUS,
        (count_up_to, "", 1, group_id),
        lambda rows: GroupStatus(*rows[0]) if rows else None,
    )


def parked(context: LogContext, group_id: str) -> Operation[list[ParkedPartition]]:
    """List the parked partitions of a group."""
    return _on_group(
        context, "parked_partitions", lambda rows: [ParkedPartition(*row) for row in rows], group_id
    )


def _on_group(
    context: LogContext,
    name: str,
    decode: Callable[[list[Row]], Result],
    group_id: str,
    *arguments: str | None,
) -> Operation[Result]:
    check_text("group_id", group_id)
    context.require_penstock("a consumer group")
    notifies = frozenset([of_group(group_id)] if name in _MAKE_READY else [])
    return call(
        name, _SQL[name], (group_id, *arguments), decode, notifies=notifies, group_id=group_id
    )
