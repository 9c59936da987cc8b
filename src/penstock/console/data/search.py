"""Search the log by id, by type and attributes, or by correlation.

Ids and the attributes of declared types are indexed. For anything else a fixed number of messages
is looked at: the newest ones or, for a correlation, those that follow the first message of it. That
is found by its id, which is the correlation id of what follows from it, or by the time that a UUID
of version 7 contains.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, LiteralString
from uuid import UUID

import msgspec

from penstock.console.data.categories import declared_types
from penstock.console.data.log import COLUMNS, MessageRow, as_row, position_at, row_of
from penstock.console.data.message_detail import recorded
from penstock.console.data.pages import check_page, cursor, place, query
from penstock.errors import MessageNotFound, ValidationError
from penstock.message import as_uuid, check_text
from penstock.message.conditions import attribute_text
from penstock.store_async import AsyncStore

#: messages that a search without an index looks at
LOOK_AT = 10_000
_HIGHEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Found:
    """What a search has found, and what it did not look at."""

    items: tuple[MessageRow, ...]
    #: pass it as `after` to look further
    next: str | None
    #: whether nothing was left out that the database holds
    complete: bool
    #: in words, for instance "the newest 10,000 messages"
    looked_at: str


async def search(
    store: AsyncStore,
    *,
    type: str | None = None,
    attributes: Mapping[str, str] | None = None,
    correlation: str | None = None,
    id: str | None = None,
    after: str | None = None,
    limit: int = 50,
) -> Found:
    """Return messages by id; by correlation, oldest first; or by type and attributes, newest first.

    Attributes without a type are looked for in all types that declare them.
    """
    store.context.require_penstock("the console")
    check_page(limit)
    given = [one for one in (id, correlation, type or attributes) if one]
    if len(given) != 1:
        expected = "one of: an id, a correlation, or a type and attributes"
        raise ValidationError("search", given, expected)
    if id:
        return await _by_id(store, id)
    if correlation:
        check_text("correlation", correlation)
        return await _by_correlation(store, correlation, after, limit)
    if type is not None:
        check_text("type", type)
    wanted = {
        check_text("attribute", name): attribute_text(name, value)
        for name, value in (attributes or {}).items()
    }
    return await _by_attributes(store, type, wanted, after, limit)


def as_attributes(texts: Iterable[str]) -> dict[str, str]:
    """Return the attributes that texts such as `name=value` name."""
    attributes = {}
    for one in texts:
        name, separator, value = one.partition("=")
        if not separator or not name.strip():
            raise ValidationError("attribute", one, "name=value")
        attributes[name.strip()] = value.strip()
    return attributes


async def _by_id(store: AsyncStore, id: str) -> Found:
    as_uuid(id)
    found: tuple[MessageRow, ...] = ()
    with suppress(MessageNotFound):
        found = (row_of(await recorded(store, id)),)
    return Found(found, None, True, "the index of ids; archived messages are not in it")


#: along the index of one attribute, or of the type; the others are compared in the data
_INDEXED: LiteralString = f"""
with looked_at as materialized (
  select a.global_position from unnest(%(types)s::text[]) as w(type)
  join penstock.message_types t on t.type = w.type
  cross join lateral (
    select a.global_position from penstock.message_attributes a
    where a.key_pair = penstock.key_pair(%(name)s, coalesce(%(value)s, t.type))
      and a.type_id = t.id and a.global_position < %(below)s
    order by a.key_pair desc, a.type_id desc, a.global_position desc limit %(look_at)s
  ) a
  order by 1 desc limit %(look_at)s
), found as (
  select l.global_position from looked_at l
  cross join lateral (
    select m.data from penstock.indexed_messages m
    where m.global_position = l.global_position limit 1 offset 0
  ) m
  where not exists (
    select from jsonb_each_text(%(attributes)s::jsonb) w
    where m.data ->> w.key is distinct from w.value)
  order by 1 desc limit %(most)s
)
select f.global_position as at, (select count(*) from looked_at),
  (select min(global_position) from looked_at), found.*
from (select 1) one
left join found f on true
left join lateral (
  select {COLUMNS} from message_store.messages m where m.global_position = f.global_position
) found on true
order by 1 desc"""  # noqa: S608
_NEWEST: LiteralString = f"""
with looked_at as materialized (
  select m.global_position, m.type from message_store.messages m
  where m.global_position < %(below)s order by m.global_position desc limit %(look_at)s
), found as (
  select l.global_position from looked_at l where l.type = %(type)s order by 1 desc limit %(most)s
)
select f.global_position as at, (select count(*) from looked_at),
  (select min(global_position) from looked_at), found.*
from (select 1) one
left join found f on true
left join lateral (
  select {COLUMNS} from message_store.messages m where m.global_position = f.global_position
) found on true
order by 1 desc"""  # noqa: S608


async def _by_attributes(
    store: AsyncStore,
    type: str | None,
    wanted: Mapping[str, str],
    after: str | None,
    limit: int,
) -> Found:
    [below] = place(after, int) or (_HIGHEST,)
    declared = [
        one
        for one in await declared_types(store)
        if (type is None or one.type == type) and set(wanted) <= set(one.attributes)
    ]
    arguments: dict[str, Any] = {"below": below, "look_at": LOOK_AT, "most": limit + 1}
    if declared:
        name, value = next(iter(wanted.items()), ("", None))
        arguments |= {"types": [one.type for one in declared], "name": name, "value": value}
        arguments |= {"attributes": _as_json(wanted)}
        rows = await store.run(query("search", _INDEXED, arguments, list))
        return await _found(store, rows, limit, "the index of attributes", indexed=True)
    if wanted:
        whose = f"type {type}" if type else "any type"
        expected = f"attributes that {whose} declares: others are not indexed"
        raise ValidationError("attributes", dict(wanted), expected)
    rows = await store.run(query("search", _NEWEST, arguments | {"type": type}, list))
    place_of = "newest" if after is None else "next"
    looked_at = f"the {place_of} {rows[0][1]:,} messages: type {type} is not indexed"
    return await _found(store, rows, limit, looked_at, indexed=False)


def _as_json(wanted: Mapping[str, str]) -> str:
    return msgspec.json.encode(dict(wanted)).decode()


async def _found(
    store: AsyncStore, rows: list[Any], limit: int, looked_at: str, *, indexed: bool
) -> Found:
    count, lowest = rows[0][1:3]
    found = [row for row in rows if row[0] is not None]
    # archived messages have stubs in the index, and are read one by one
    items = [
        as_row(row[3:]) if row[3] is not None else row_of(await recorded(store, row[0]))
        for row in found[:limit]
    ]
    end = None
    if len(found) > limit:
        end = cursor(found[limit - 1][0])
    elif count == LOOK_AT:
        end = cursor(lowest)
    return Found(tuple(items), end, end is None or (indexed and len(found) > limit), looked_at)


_FOLLOWING: LiteralString = f"""
with looked_at as materialized (
  select m.global_position,
    case when pg_column_size(m.metadata) <= 16384 then m.metadata ->> 'correlation_id' end as value
  from message_store.messages m
  where m.global_position >= %(first)s order by m.global_position limit %(look_at)s
), found as (
  select l.global_position from looked_at l
  where l.value = %(correlation)s order by 1 limit %(most)s
)
select f.global_position as at, (select count(*) from looked_at),
  (select max(global_position) from looked_at), found.*
from (select 1) one
left join found f on true
left join lateral (
  select {COLUMNS} from message_store.messages m where m.global_position = f.global_position
) found on true
order by 1"""  # noqa: S608


async def _by_correlation(
    store: AsyncStore, correlation: str, after: str | None, limit: int
) -> Found:
    begins: int | None = None
    origin: tuple[MessageRow, ...] = ()
    if after is None:
        begins, origin = await _origin(store, correlation)
    [first] = place(after, int) or (begins,)
    if first is None:
        first, said = await _newest(store), "the newest"
    else:
        said = "the" if begins is None else "the first"
    arguments = {
        "first": first,
        "look_at": LOOK_AT,
        "most": limit + 1,
        "correlation": correlation,
    }
    rows = await store.run(query("search", _FOLLOWING, arguments, list))
    count, highest = rows[0][1:3]
    found = [as_row(row[3:]) for row in rows if row[0] is not None]
    end = None
    if len(found) > limit:
        end = cursor(found[limit - 1].global_position + 1)
    elif count == LOOK_AT:
        end = cursor(highest + 1)
    looked_at = f"{said} {count:,} messages from {first} on: correlations are not indexed"
    items = (*origin, *found[:limit])
    return Found(items, end, False, looked_at)


async def _origin(store: AsyncStore, correlation: str) -> tuple[int | None, tuple[MessageRow, ...]]:
    """Return where to begin to look, and the message whose id is the correlation, if any."""
    try:
        id = as_uuid(correlation)
    except ValidationError:
        return None, ()
    try:
        first = await recorded(store, id)
    except MessageNotFound:
        moment = time_of(id)
        return (None if moment is None else await position_at(store, moment)), ()
    return first.global_position + 1, (row_of(first),)


def time_of(id: UUID) -> datetime | None:
    """Return the time that a UUID of version 7 contains; None for another one."""
    if id.version != 7:
        return None
    try:
        return datetime.fromtimestamp((id.int >> 80) / 1000, UTC)
    except (ValueError, OverflowError):
        return None


async def _newest(store: AsyncStore) -> int:
    sql: LiteralString = (
        "select coalesce(min(n.global_position), 0) from (select m.global_position"
        " from message_store.messages m order by m.global_position desc limit %s) n"
    )
    return int(await store.run(query("newest", sql, (LOOK_AT,), lambda rows: rows[0][0])))
