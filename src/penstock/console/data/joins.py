"""Joins: their steps, and what they still wait for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import LiteralString
from uuid import UUID

from penstock.console.data.outbox_rows import COLUMNS, OutboxRow, as_row
from penstock.console.data.pages import Page, check_page, page, place, query
from penstock.database.operation import Row
from penstock.errors import JoinNotFound, ValidationError
from penstock.message import as_uuid, check_text
from penstock.store_async import AsyncStore

STATUSES = ("pending", "completed", "failed", "cancelled")
#: of a join that a page shows
MOST_STEPS = 200
#: joins that are looked through for a message that is not pending in one
LOOK_AT = 500


@dataclass(frozen=True, slots=True)
class JoinRow:
    """A join in a list."""

    join_id: UUID
    grouping_key: str | None
    status: str
    expected_steps: int
    attached_steps: int
    completed_steps: int
    failed_steps: int
    times_out_at: datetime | None
    wait_id: UUID | None
    follow_up_id: UUID | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Step:
    """A member of a join."""

    message_id: UUID
    #: pending, completed or failed
    status: str
    attached_at: datetime
    #: None: the message was cleaned up
    topic: str | None
    state: str | None
    due: datetime | None
    last_error: str | None


@dataclass(frozen=True, slots=True)
class JoinDetail:
    """A join, its steps, and what it waits for."""

    row: JoinRow
    metadata: str | None
    #: the first 200
    steps: tuple[Step, ...]
    more_steps: bool
    #: such as "2 steps are not finished", "1 step is not attached yet"
    waits_for: tuple[str, ...]
    #: None: there is none, or it was cleaned up
    wait: OutboxRow | None
    follow_up: OutboxRow | None


_COLUMNS: LiteralString = """
  j.join_id, j.grouping_key, penstock.join_status(j), j.expected_steps, j.attached_steps,
  j.completed_steps, j.failed_steps, penstock.readable_moment(j.times_out_at), j.wait_id,
  j.follow_up_id, penstock.readable_moment(j.created_at), penstock.readable_moment(j.updated_at)"""
#: the newest joins of each status, along the index
_NEWEST: LiteralString = """
  select c.join_id, c.created_at
  from unnest(%(statuses)s::text[]) as s(status)
  cross join lateral (
    select j.join_id, j.created_at from penstock.joins j
    where j.status = s.status and j.created_at <= %(time)s
      and (j.created_at, j.join_id) < (%(time)s, %(id)s)
    order by j.status desc, j.created_at desc, j.join_id desc limit %(most)s
  ) c
  order by c.created_at desc, c.join_id desc limit %(most)s"""
_NEWEST_OF_KEY: LiteralString = _NEWEST.replace(
    "where j.status", "where j.grouping_key = %(grouping_key)s and j.status"
)
_END_OF_TIME = datetime(9999, 12, 31, tzinfo=UTC)
_LAST_ID = UUID(int=2**128 - 1)


async def joins(
    store: AsyncStore,
    status: str | None = None,
    after: str | None = None,
    limit: int = 50,
    *,
    grouping_key: str | None = None,
) -> Page[JoinRow]:
    """Return joins, newest first, with a status or with any, of one grouping key or of all.

    A join that has timed out is listed as pending until its wait is resolved, and shown as failed.
    """
    store.context.require_penstock("the outbox")
    if status is not None and status not in STATUSES:
        raise ValidationError("status", status, f"one of {', '.join(STATUSES)}")
    if grouping_key is not None:
        check_text("grouping_key", grouping_key)
    check_page(limit)
    time, id = place(after, datetime, UUID) or (_END_OF_TIME, _LAST_ID)
    sql: LiteralString = f"""
with newest as materialized ({_NEWEST if grouping_key is None else _NEWEST_OF_KEY})
select {_COLUMNS}, n.created_at from newest n
join penstock.join_progress j on j.join_id = n.join_id
order by n.created_at desc, n.join_id desc"""  # noqa: S608
    arguments = {
        "statuses": list(STATUSES) if status is None else [status],
        "time": time,
        "id": id,
        "most": limit + 1,
        "grouping_key": grouping_key,
    }
    return await store.run(
        query(
            "joins",
            sql,
            arguments,
            lambda rows: page(rows, limit, _join, lambda row: (row[12], row[0])),
        )
    )


def _join(row: Row) -> JoinRow:
    return JoinRow(*row[:12])


async def join(store: AsyncStore, join_id: str | UUID) -> JoinDetail:
    """Return one join with its steps, or raise `JoinNotFound`."""
    store.context.require_penstock("the outbox")
    sql: LiteralString = f"""
select {_COLUMNS}, j.metadata from penstock.join_progress j where j.join_id = %s"""  # noqa: S608
    rows = await store.run(query("join", sql, (as_uuid(join_id),), list))
    if not rows:
        raise JoinNotFound(str(join_id))
    row, metadata = _join(rows[0]), rows[0][12]
    steps = await store.run(query("join_steps", _STEPS, (row.join_id, MOST_STEPS + 1), list))
    wait, follow_up = await _message(store, row.wait_id), await _message(store, row.follow_up_id)
    return JoinDetail(
        row=row,
        metadata=metadata,
        steps=tuple(Step(*one) for one in steps[:MOST_STEPS]),
        more_steps=len(steps) > MOST_STEPS,
        waits_for=_waits_for(row, wait),
        wait=wait,
        follow_up=follow_up,
    )


async def _message(store: AsyncStore, id: UUID | None) -> OutboxRow | None:
    if id is None:
        return None
    sql: LiteralString = f"select {COLUMNS} from penstock.outbox o where o.id = %s"  # noqa: S608
    rows = await store.run(query("outbox_message", sql, (id,), list))
    return as_row(rows[0]) if rows else None


_STEPS: LiteralString = """
select m.message_id, m.status, penstock.readable_moment(m.created_at), o.topic,
  case when o.state = 'ready' and o.due is null then 'asleep' else o.state end,
  penstock.readable_moment(o.due), left(o.last_error, 2000)
from (
  select m.* from penstock.join_members m where m.join_id = %s order by m.message_id limit %s
) m
left join lateral (
  select o.* from penstock.outbox o where o.id = m.message_id limit 1
) o on true
order by m.message_id"""


def _waits_for(row: JoinRow, wait: OutboxRow | None) -> tuple[str, ...]:
    if row.status != "pending":
        return ()
    unfinished = row.attached_steps - row.completed_steps - row.failed_steps
    unattached = row.expected_steps - row.attached_steps
    said = []
    if unfinished:
        said.append(f"{_steps(unfinished)} not finished")
    if unattached > 0:
        said.append(f"{_steps(unattached)} not attached yet")
    if row.wait_id is None:
        said.append("nothing waits for it: no message follows")
    elif not said:
        said.append(f"a dispatcher, to resolve its wait, which is {wait.state if wait else 'gone'}")
    return tuple(said)


def _steps(count: int) -> str:
    return f"{count:,} {'step is' if count == 1 else 'steps are'}"


_OF_MESSAGE: LiteralString = f"""
with newest as materialized ({_NEWEST}), found as (
  select m.join_id from penstock.join_members m
  where m.message_id = %(message)s and m.status = 'pending'
  union
  select n.join_id from newest n
  join penstock.join_members m on m.join_id = n.join_id and m.message_id = %(message)s
  union
  select n.join_id from newest n join penstock.joins j on j.join_id = n.join_id
  where %(message)s in (j.wait_id, j.follow_up_id)
)
select {_COLUMNS} from (select f.join_id from found f limit 20) f
join penstock.join_progress j on j.join_id = f.join_id
order by j.created_at"""  # noqa: S608


async def joins_of(store: AsyncStore, message_id: UUID) -> tuple[JoinRow, ...]:
    """Return the joins that a message is a step of, or that it waits for or follows.

    All that it is a pending step of; of the others those among the newest 500 of each status.
    """
    arguments = {
        "statuses": list(STATUSES),
        "time": _END_OF_TIME,
        "id": _LAST_ID,
        "most": LOOK_AT,
        "message": message_id,
    }
    rows = await store.run(query("joins_of", _OF_MESSAGE, arguments, list))
    return tuple(_join(row) for row in rows)
