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
select c.category, c.head, c.last_written, penstock.archived_to(c.category)
from penstock.categories(%s, %s) c order by 1"""


#: every name from a place on, of any category, and how many others have come in a row
_STREAMS: LiteralString = """
select n.stream_name, n.others, last.position, last.time
from (
  select * from penstock.stream_names(%(category)s, %(after)s, %(others)s) limit %(most)s
) n
left join lateral (
  select m.position, m.time from message_store.messages m
  where n.others = 0 and m.stream_name = n.stream_name order by m.position desc limit 1
) last on true
order by n.stream_name"""


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
    [name] = place(after, str) or (None,)
    by_bytes = await store.run(
        query("collation", "select penstock.sorts_by_bytes()", (), only_value)
    )
    most = limit + OTHERS

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
        "others": OTHERS,
        "most": most if not by_bytes else limit + 2,
    }
    return await store.run(query("streams", _STREAMS, arguments, decode))


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
