"""Partitioned consumer groups."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from penstock.console.data.pages import (
    COUNT_UP_TO,
    Count,
    Page,
    bounded,
    check_page,
    counted,
    page,
    place,
)
from penstock.errors import GroupNotFound
from penstock.groups import operations
from penstock.groups.operations import GroupStatus
from penstock.store_async import AsyncStore


@dataclass(frozen=True, slots=True)
class Group:
    """A partitioned consumer group."""

    group_id: str
    #: active or stopped
    status: str
    partition_by: tuple[str, ...]
    handled_types: tuple[str, ...]
    partitions: Count
    pending: Count
    claimed: Count
    parked: Count
    routed_to: int
    #: how long its first unhandled message has waited
    seconds_behind: float
    created_at: datetime


async def groups(store: AsyncStore, after: str | None = None, limit: int = 100) -> Page[Group]:
    """Return the groups by name."""
    check_page(limit)
    [name] = place(after, str) or ("",)
    listed = operations.listing(store.context, COUNT_UP_TO, name, limit + 1)
    found = await store.run(bounded(listed))
    return page(found, limit, _group, lambda one: (one.group_id,))


async def group(store: AsyncStore, group_id: str) -> Group:
    """Return one group, or raise `GroupNotFound`."""
    found = await store.run(bounded(operations.one(store.context, group_id, COUNT_UP_TO)))
    if found is None:
        raise GroupNotFound(group_id)
    return _group(found)


def _group(one: GroupStatus) -> Group:
    return Group(
        group_id=one.group_id,
        status=one.status,
        partition_by=tuple(one.partition_by or ()),
        handled_types=tuple(one.handled_types),
        partitions=counted(one.partitions),
        pending=counted(one.pending),
        claimed=counted(one.claimed),
        parked=counted(one.parked),
        routed_to=one.routed_to,
        seconds_behind=one.seconds_behind,
        created_at=one.created_at,
    )
