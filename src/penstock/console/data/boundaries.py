"""The boundary explorer: what a guard would see, and who is deciding there now.

A guard holds exclusive advisory locks on the keys of its conditions, and a writer of a matching
message a shared one, until they commit (see `sql/penstock/31_boundaries.sql`): the sessions are
found in `pg_locks` by those keys. A write of very many messages locks the table `boundary_gate`
instead.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import LiteralString

from penstock.console.data.log import COLUMNS, MessageRow, as_row
from penstock.console.data.pages import LOOK_AT, check_page, cursor, place, query
from penstock.database.operation import Row
from penstock.errors import ValidationError
from penstock.log.boundary import as_guard
from penstock.log.guard import grouped_json
from penstock.message.conditions import QueryCondition
from penstock.store_async import AsyncStore

_HIGHEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Holder:
    """A session that holds, or waits for, a lock of the boundary."""

    pid: int
    application: str | None
    role: str | None
    state: str | None
    #: since its transaction began
    seconds: float | None
    statement: str | None
    #: `decides`: a guard; `writes`: a message that may match; `writes in bulk`: any messages
    what: str
    waits: bool


@dataclass(frozen=True, slots=True)
class Boundary:
    """The messages that a guard with these conditions would see, newest first."""

    conditions: tuple[QueryCondition, ...]
    items: tuple[MessageRow, ...]
    next: str | None
    #: global positions of matching messages on this page that are in the archive
    archived: tuple[int, ...]
    #: the guard's `low`: everything up to here is complete
    complete_to: int
    #: at most 50
    holders: tuple[Holder, ...]


def parse_conditions(text: str) -> tuple[QueryCondition, ...]:
    """Return the conditions that a text has, one for each line or semicolon.

    A line is a type, and attributes with values: `user.joined course=Algebra user=joe`. Values
    with spaces or semicolons are in double quotes. A type alone matches all its messages.
    """
    found = [one for line in _lines(text) for one in _conditions(line)]
    if not found:
        expected = "a type, and attributes with values, such as `user.joined course=Algebra`"
        raise ValidationError("conditions", text, expected)
    return tuple(found)


def _lines(text: str) -> list[str]:
    quoted = r'"(?:[^"\\]|\\.)*"?'
    parts = re.findall(rf"(?:{quoted}|[^;\n\"])+", text)
    return [one.strip() for one in parts if one.strip()]


def _conditions(line: str) -> list[QueryCondition]:
    expected = "a type, and then attributes as name=value, with values that have spaces in quotes"
    try:
        type, *attributes = shlex.split(line, posix=True)
    except ValueError:  # a quote that is not closed
        raise ValidationError("conditions", line, expected) from None
    if "=" in type or any(one.find("=") < 1 for one in attributes):
        raise ValidationError("conditions", line, expected)
    pairs = [one.partition("=") for one in attributes]
    if not pairs:
        return [QueryCondition(type)]
    return [QueryCondition(type, name, value) for name, _, value in pairs]


async def explore(
    store: AsyncStore,
    conditions: str | Iterable[QueryCondition],
    after: str | None = None,
    limit: int = 50,
) -> Boundary:
    """Return what a guard with these conditions would see, and who is deciding there now.

    Types and attributes that are not declared are refused, as a guard refuses them.
    """
    store.context.require_penstock("a boundary")
    check_page(limit)
    [below] = place(after, int) or (_HIGHEST,)
    wanted = parse_conditions(conditions) if isinstance(conditions, str) else tuple(conditions)
    as_json = grouped_json(as_guard(wanted).conditions)
    check: LiteralString = "select penstock.check_conditions(%s::jsonb)"
    await store.run(query("check_conditions", check, (as_json,), lambda _: None))
    arguments = {"conditions": as_json, "below": below, "look_at": LOOK_AT, "most": limit + 1}
    rows = await store.run(query("explore", _MATCHING, arguments, list))
    holders = await store.run(query("boundary_locks", _LOCKS, {"conditions": as_json}, list))
    complete_to, looked_at, lowest = rows[0][:3]
    found = [row[3:] for row in rows if row[3] is not None]
    end = None
    if len(found) > limit:
        end = cursor(found[limit - 1][0])
    elif looked_at >= LOOK_AT:
        end = cursor(lowest)
    return Boundary(
        conditions=wanted,
        items=tuple(as_row(row[1:]) for row in found[:limit] if row[1] is not None),
        next=end,
        archived=tuple(row[0] for row in found[:limit] if row[1] is None),
        complete_to=complete_to,
        holders=tuple(_holder(row) for row in holders),
    )


#: as penstock.matching_positions, newest first and bounded: along the index of each key
_MATCHING: LiteralString = f"""
with looked_at as materialized (
  select distinct i.global_position, c.condition, t.type
  from jsonb_array_elements(%(conditions)s::jsonb) as c(condition)
  cross join lateral (
    select t.id, t.type from penstock.message_types t
    where t.type = c.condition ->> 'type' offset 0
  ) t
  cross join lateral penstock.watched_keys(c.condition) k
  cross join lateral (
    select a.global_position from penstock.message_attributes a
    where a.key_pair = k.key_pair and a.type_id = t.id and a.global_position < %(below)s
    order by a.key_pair desc, a.type_id desc, a.global_position desc limit %(look_at)s
  ) i
  order by i.global_position desc limit %(look_at)s
), found as (
  select distinct l.global_position
  from looked_at l
  cross join lateral (
    select m.data from penstock.indexed_messages m
    where m.global_position = l.global_position and m.type = l.type limit 1 offset 0
  ) m
  where penstock.carries(m.data, l.condition -> 'attributes')
  order by 1 desc limit %(most)s
)
select penstock.complete_to(), (select count(*) from looked_at),
  (select min(global_position) from looked_at), f.global_position, found.*
from (select 1) one
left join found f on true
left join lateral (
  select {COLUMNS} from message_store.messages m where m.global_position = f.global_position
) found on true
order by f.global_position desc"""  # noqa: S608
_LOCKS: LiteralString = """
with keys as (
  -- the boundary's keys, and those of its types, which a guard of very many keys locks
  select unnest(penstock.boundary_keys(%(conditions)s::jsonb)) as key
  union
  select penstock.key_pair('', c.condition ->> 'type')
  from jsonb_array_elements(%(conditions)s::jsonb) as c(condition)
), locks as (
  select l.pid, bool_or(l.mode = 'ExclusiveLock') as decides, bool_or(not l.granted) as waits,
    false as bulk
  from keys k
  join pg_catalog.pg_locks l on l.locktype = 'advisory' and l.objsubid = 1
    and l.classid = ((k.key >> 32) & 4294967295)::oid and l.objid = (k.key & 4294967295)::oid
    and l.database = (select d.oid from pg_catalog.pg_database d
      where d.datname = current_database())
  group by l.pid
  union all
  select l.pid, false, bool_or(not l.granted), true
  from pg_catalog.pg_locks l
  where l.locktype = 'relation' and l.relation = 'penstock.boundary_gate'::regclass
    and l.mode in ('ShareLock', 'ShareRowExclusiveLock')
    and l.database = (select d.oid from pg_catalog.pg_database d
      where d.datname = current_database())
  group by l.pid
)
select l.pid, a.application_name, a.usename::text, a.state,
  extract(epoch from clock_timestamp() - a.xact_start)::float8, left(a.query, 1000), l.decides,
  l.waits, l.bulk
from locks l left join pg_catalog.pg_stat_activity a on a.pid = l.pid
where l.pid is distinct from pg_backend_pid()
order by l.decides desc, a.xact_start limit 50"""


def _holder(row: Row) -> Holder:
    pid, application, role, state, seconds, statement, decides, waits, bulk = row
    what = "decides" if decides else "writes in bulk" if bulk else "writes"
    return Holder(pid, application, role, state, seconds, statement, what, waits)
