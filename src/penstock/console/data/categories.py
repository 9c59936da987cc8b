"""What is in the log: categories, their streams, and declared types."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString

from penstock.console.data.log import utc
from penstock.console.data.pages import Page, check_page, cursor, page, place, query
from penstock.database.operation import Row, only_value
from penstock.log.write import check_category
from penstock.store_async import AsyncStore


@dataclass(frozen=True, slots=True)
class Category:
    """A category, the global position of its last message, and when that was written."""

    category: str
    head: int
    last_written: datetime
    #: the last global position of it in the archive
    archived_to: int | None


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream, the position of its last message, and when that was written."""

    stream_name: str
    version: int
    last_written: datetime


@dataclass(frozen=True, slots=True)
class DeclaredType:
    """A message type whose attributes are indexed, so that it can be searched for."""

    type: str
    attributes: tuple[str, ...]


#: names that a page of streams goes past that are of other categories
OTHERS = 1_000


_CATEGORIES: LiteralString = """
with recursive names as (
  -- the first category after `after`, and then each category after the one before
  (select message_store.category(m.stream_name) as name from message_store.messages m
   where message_store.category(m.stream_name) > %s
   order by message_store.category(m.stream_name) limit 1)
  union all
  select (
    select message_store.category(m.stream_name) from message_store.messages m
    where message_store.category(m.stream_name) > names.name
    order by message_store.category(m.stream_name) limit 1)
  from names where names.name is not null
)
select names.name, last.global_position, last.time, penstock.archived_to(names.name)
from (select n.name from names n where n.name is not null limit %s) names
cross join lateral (
  select m.global_position, m.time from message_store.messages m
  where (message_store.category(m.stream_name), m.global_position) >= (names.name, 0)
    and (message_store.category(m.stream_name), m.global_position)
      <= (names.name, 9223372036854775807)
  order by message_store.category(m.stream_name) desc, m.global_position desc limit 1
) last
order by 1"""


#: every name from a place on, of any category, and whether one of the category may follow
_STREAMS: LiteralString = """
with recursive names(name, others) as (
  (select m.stream_name, case when message_store.category(m.stream_name) = %(category)s
     then 0 else 1 end
   from message_store.messages m
   where m.stream_name {beyond} %(after)s
   order by m.stream_name limit 1)
  union all
  select later.stream_name, case when message_store.category(later.stream_name) = %(category)s
    then 0 else names.others + 1 end
  from names
  cross join lateral (
    select m.stream_name from message_store.messages m
    where m.stream_name > names.name order by m.stream_name limit 1
  ) later
  -- where names sort by their bytes, the first other name after the prefix is the end
  where names.others <= case when %(by_bytes)s and names.name > %(category)s || '-' then 0
    else %(others)s end
)
select n.name, n.others, last.position, last.time
from (select * from names limit %(most)s) n
left join lateral (
  select m.position, m.time from message_store.messages m
  where n.others = 0 and m.stream_name = n.name order by m.position desc limit 1
) last on true
order by n.name"""


_BY_BYTES: LiteralString = """
select d.datcollate in ('C', 'POSIX', 'C.UTF-8', 'C.utf8') or d.datlocprovider::text = 'b'
from pg_catalog.pg_database d where d.datname = current_database()"""


async def categories(
    store: AsyncStore, after: str | None = None, limit: int = 100
) -> Page[Category]:
    """Return categories by name."""
    store.context.require_penstock("listing categories")
    check_page(limit)
    [name] = place(after, str) or ("",)
    return await store.run(
        query(
            "categories",
            _CATEGORIES,
            (name, limit + 1),
            lambda rows: page(
                rows,
                limit,
                lambda row: Category(row[0], row[1], utc(row[2]), row[3]),
                lambda row: row[:1],
            ),
        )
    )


async def streams(
    store: AsyncStore, category: str, after: str | None = None, limit: int = 100
) -> Page[Stream]:
    """Return the streams of a category by name.

    Where names do not sort by their bytes, streams of other categories may be among them. A page
    goes past a thousand of those, and may be short then.
    """
    store.context.require_penstock("listing streams")
    check_category(category)
    check_page(limit)
    [name] = place(after, str) or (category,)
    by_bytes = await store.run(query("collation", _BY_BYTES, (), only_value))
    most = limit + OTHERS
    sql = _STREAMS.replace("{beyond}", ">=" if after is None else ">")

    def decode(rows: list[Row]) -> Page[Stream]:
        found = [row for row in rows if row[1] == 0]
        if len(found) > limit:
            found = found[: limit + 1]
            return page(found, limit, _stream, lambda row: row[:1])
        goes_on = len(rows) == most or bool(rows and rows[-1][1] > OTHERS)
        end = cursor(rows[-1][0]) if goes_on and not by_bytes else None
        return Page(tuple(_stream(row) for row in found), end)

    arguments = {
        "category": category,
        "after": name,
        "by_bytes": by_bytes,
        "others": OTHERS,
        "most": most if not by_bytes else limit + 2,
    }
    return await store.run(query("streams", sql, arguments, decode))


def _stream(row: Row) -> Stream:
    name, _, version, time = row
    return Stream(name, version, utc(time))


async def declared_types(store: AsyncStore) -> tuple[DeclaredType, ...]:
    """Return the types with indexed attributes, at most 1,000."""
    store.context.require_penstock("the console")
    sql: LiteralString = (
        "select type, attributes from penstock.message_types order by type limit 1000"
    )
    return await store.run(
        query(
            "declared_types",
            sql,
            (),
            lambda rows: tuple(DeclaredType(one, tuple(attributes)) for one, attributes in rows),
        )
    )
