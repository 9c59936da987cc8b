"""The partitions of a consumer group, by state or by key."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

from penstock.console.data.groups import group
from penstock.console.data.pages import LOOK_AT, Page, check_page, cursor, page, place, query
from penstock.database.operation import Row
from penstock.errors import PartitionNotFound, ValidationError
from penstock.message import check_text
from penstock.store_async import AsyncStore


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition of a group."""

    group_id: str
    partition_key: str
    #: claimed, parked, ready, delayed or idle
    state: str
    last_position: int
    #: of its first unhandled message
    next_position: int | None
    claimed_by: str | None
    claimed_at: datetime | None
    #: when its lease or its delay ends
    due: datetime | None
    attempts: int
    error: str | None
    parked_at: datetime | None


_COLUMNS: LiteralString = """
  p.partition_key, s.last_position, s.next_position, s.claimed_by, s.claimed_at,
  penstock.readable_moment(s.due), s.attempts, left(s.error, 2000), s.parked_at,
  s.token is not null, s.queue_position is not null"""
#: by which index, after which place, and which of its rows
_BY_STATE: dict[str, tuple[LiteralString, LiteralString, LiteralString]] = {
    "pending": ("next_position", "s.next_position is not null and s.parked_at is null", "true"),
    "ready": ("queue_position", "s.queue_position is not null", "true"),
    "claimed": ("due", "s.due is not null", "s.token is not null"),
    "delayed": ("due", "s.due is not null", "s.token is null"),
    "parked": ("next_position", "s.parked_at is not null", "true"),
}
STATES = tuple(_BY_STATE)


async def partitions(
    store: AsyncStore,
    group_id: str,
    state: str | None = None,
    after: str | None = None,
    limit: int = 100,
) -> Page[Partition]:
    """Return partitions: pending, ready, claimed, delayed or parked ones, the oldest first; or all.

    All of them come in no particular order. `pending` are those with unhandled messages that are
    not parked, ready or not.
    """
    if state is not None and state not in _BY_STATE:
        raise ValidationError("state", state, f"one of {', '.join(_BY_STATE)}, or None for all")
    check_page(limit)
    await group(store, group_id)  # raises if there is none
    if state is None:
        return await _all_partitions(store, group_id, after, limit)
    axis, indexed, wanted = _BY_STATE[state]
    of_times = axis == "due"
    start = place(after, datetime if of_times else int, int)
    least: Any = "-infinity" if of_times else -1
    sql: LiteralString = f"""
with looked_at as materialized (
  select s.* from penstock.partition_states s
  where s.group_pk = (select g.id from penstock.consumer_groups g where g.group_id = %(group)s)
    and {indexed} and (s.{axis}, s.version) > (%(axis)s, %(version)s)
  order by s.{axis}, s.version limit %(look_at)s
)
select {_COLUMNS}, s.{axis}, s.version, (select count(*) from looked_at)
from looked_at s
cross join lateral (  -- a look-up for each, and not all partitions to join them
  select p.* from penstock.partitions p where p.offset_id = s.offset_id offset 0
) p
order by s.{axis}, s.version"""  # noqa: S608
    # a parked partition without a next message has a null there: it has nothing to handle
    look_at = limit + 1 if wanted == "true" else LOOK_AT
    arguments = {
        "group": group_id,
        "axis": least if start is None else start[0],
        "version": -1 if start is None else start[1],
        "look_at": look_at,
    }

    def decode(rows: list[Row]) -> Page[Partition]:
        found = [row for row in rows if wanted == "true" or row[9] == (state == "claimed")]
        whole = page(found, limit, lambda row: _partition(group_id, row), lambda row: row[11:13])
        if whole.next is None and wanted != "true" and len(rows) == LOOK_AT:
            return Page(whole.items, cursor(*rows[-1][11:13]))
        return whole

    return await store.run(query("partitions", sql, arguments, decode))


async def _all_partitions(
    store: AsyncStore, group_id: str, after: str | None, limit: int
) -> Page[Partition]:
    feed, offset_id = place(after, int, int) or (-(2**63), -1)
    sql: LiteralString = f"""
select {_COLUMNS}, p.feed, p.offset_id
from (
  select p.* from penstock.partitions p
  where p.group_pk = (select g.id from penstock.consumer_groups g where g.group_id = %(group)s)
    and p.feed >= %(feed)s and (p.feed, p.offset_id) > (%(feed)s, %(offset)s)
  order by p.feed, p.offset_id limit %(most)s
) p
cross join lateral penstock.latest_partition_state(p.offset_id) s
order by p.feed, p.offset_id"""  # noqa: S608
    arguments = {"group": group_id, "feed": feed, "offset": offset_id, "most": limit + 1}
    return await store.run(
        query(
            "partitions",
            sql,
            arguments,
            lambda rows: page(
                rows, limit, lambda row: _partition(group_id, row), lambda row: row[11:13]
            ),
        )
    )


async def partition(store: AsyncStore, group_id: str, partition_key: str) -> Partition:
    """Return one partition by its key, such as `course:Algebra|user:joe`."""
    return _partition(group_id, (await found_partition(store, group_id, partition_key))[:11])


async def found_partition(store: AsyncStore, group_id: str, partition_key: str) -> Row:
    """Return the columns of a partition, its offset id and its token."""
    own = await group(store, group_id)
    values = key_values(check_text("partition_key", partition_key))
    if len(values) != len(own.partition_by):
        raise PartitionNotFound(group_id, partition_key)
    sql: LiteralString = f"""
select {_COLUMNS}, p.offset_id, s.token
from penstock.partitions p
cross join lateral penstock.latest_partition_state(p.offset_id) s
where p.group_pk = (select g.id from penstock.consumer_groups g where g.group_id = %(group)s)
  and p.feed = penstock.feed_key(%(values)s::text[]) and p.partition_key = %(key)s"""  # noqa: S608
    arguments = {"group": group_id, "values": values, "key": partition_key}
    rows = await store.run(query("partition", sql, arguments, list))
    if not rows:
        raise PartitionNotFound(group_id, partition_key)
    return tuple(rows[0])


def key_values(partition_key: str) -> list[str]:
    """Return the values of a partition's key; a backslash goes before a separator in a value."""
    parts = re.findall(r"((?:[^|\\]|\\.)+)", partition_key, re.DOTALL)
    values = [re.match(r"((?:[^:\\]|\\.)*):(.*)", one, re.DOTALL) for one in parts]
    return [re.sub(r"\\(.)", r"\1", one[2], flags=re.DOTALL) for one in values if one]


def _partition(group_id: str, row: Row) -> Partition:
    key, last, following, worker, claimed_at, due, attempts, error, parked_at, held, queued = row[
        :11
    ]
    if parked_at is not None:
        state = "parked"
    elif held:
        state = "claimed"
    elif due is not None:
        state = "delayed"
    else:
        state = "ready" if queued else "idle"
    return Partition(
        *(group_id, key, state, last, following, worker, claimed_at, due, attempts, error),
        parked_at,
    )
