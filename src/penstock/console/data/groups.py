"""Partitioned consumer groups."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString

from penstock.console.data.pages import Count, Page, check_page, counted, page, place, query
from penstock.database.operation import Row
from penstock.errors import GroupNotFound
from penstock.message import check_text
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


_GROUPS: LiteralString = """
select g.group_id, g.status, coalesce(g.partition_by, '{}'), g.handled_types,
  (select count(*) from (
     select from penstock.partitions p where p.group_pk = g.id order by p.feed limit 1000) c),
  (select count(*) from (
     select from penstock.partition_states s
     where s.group_pk = g.id and s.next_position is not null and s.parked_at is null
     order by s.next_position limit 1000) c),
  (select count(s.token) from (
     select s.token from penstock.partition_states s
     where s.group_pk = g.id and s.due is not null order by s.due limit 1000) s),
  (select count(*) from (
     select from penstock.partition_states s
     where s.group_pk = g.id and s.parked_at is not null order by s.next_position limit 1000) c),
  a.routed_to,
  penstock.seconds_since((
    select m.time
    from (select penstock.first_pending(g) as position offset 0) f  -- called once
    join penstock.indexed_messages m on m.global_position = f.position)), g.created_at
from penstock.consumer_groups g
cross join lateral penstock.latest_group_progress(g.id) a
where {which}
order by g.group_id limit %s"""


async def groups(store: AsyncStore, after: str | None = None, limit: int = 100) -> Page[Group]:
    """Return the groups by name."""
    store.context.require_penstock("a consumer group")
    check_page(limit)
    [name] = place(after, str) or ("",)
    sql = _GROUPS.replace("{which}", "g.group_id > %s")
    return await store.run(
        query(
            "groups",
            sql,
            (name, limit + 1),
            lambda rows: page(rows, limit, _group, lambda row: row[:1]),
        )
    )


async def group(store: AsyncStore, group_id: str) -> Group:
    """Return one group, or raise `GroupNotFound`."""
    store.context.require_penstock("a consumer group")
    check_text("group_id", group_id)
    sql = _GROUPS.replace("{which}", "g.group_id = %s")
    rows = await store.run(query("group", sql, (group_id, 1), list))
    if not rows:
        raise GroupNotFound(group_id)
    return _group(rows[0])


def _group(row: Row) -> Group:
    return Group(
        group_id=row[0],
        status=row[1],
        partition_by=tuple(row[2]),
        handled_types=tuple(row[3]),
        partitions=counted(row[4]),
        pending=counted(row[5]),
        claimed=counted(row[6]),
        parked=counted(row[7]),
        routed_to=row[8],
        seconds_behind=row[9],
        created_at=row[10],
    )
