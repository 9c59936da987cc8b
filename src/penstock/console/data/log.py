"""The log: categories, streams, and messages by position, time or id."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import LiteralString
from uuid import UUID

import msgspec

from penstock.admin.readers import end_of_log
from penstock.console.data.pages import (
    LOOK_AT,
    Page,
    Shown,
    as_shown,
    bounded,
    check_page,
    cursor,
    page,
    place,
    query,
)
from penstock.database.operation import Row, call, only_value
from penstock.errors import MessageNotFound, ValidationError
from penstock.log.context import check_position
from penstock.log.read import get_category_messages, get_stream_messages
from penstock.log.write import check_category, check_stream_name
from penstock.message import RecordedMessage, as_uuid, check_text, names
from penstock.message.names import is_category
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
class MessageRow:
    """A message in a list."""

    id: UUID
    stream_name: str
    category: str
    type: str
    position: int
    global_position: int
    time: datetime
    #: the beginning of it; nothing if it is large
    data: Shown
    correlation_id: str | None
    causation_id: str | None


@dataclass(frozen=True, slots=True)
class MessageDetail:
    """One message."""

    id: UUID
    stream_name: str
    category: str
    type: str
    position: int
    global_position: int
    time: datetime
    data: Shown
    metadata: Shown
    correlation_id: str | None
    causation_id: str | None
    reply_stream_name: str | None
    trace_id: str | None
    #: whether it was read from the archive
    archived: bool
    #: whether readers of many streams get it already
    complete: bool
    #: global positions of its neighbours in the stream
    previous: int | None
    next: int | None


@dataclass(frozen=True, slots=True)
class MessagePage:
    """Messages, newest first."""

    items: tuple[MessageRow, ...]
    #: pass it as `after` for older ones
    next: str | None
    #: the highest position (in the log or, of a stream, in that) when it was read
    head: int
    #: older ones than the last page are in the archive: read those with `messages_from`
    archived_to: int | None


@dataclass(frozen=True, slots=True)
class DeclaredType:
    """A message type whose attributes are indexed, so that it can be searched for."""

    type: str
    attributes: tuple[str, ...]


#: a larger value is not sent for a list: bytes, as it is stored
LARGE = 16_384
#: values of a message that a list shows
PREVIEW = 50
#: names that a page of streams goes past that are of other categories
OTHERS = 1_000
_HIGHEST = 2**63 - 1
COLUMNS: LiteralString = """
  m.id, m.stream_name, m.type, m.position, m.global_position, m.time,
  case when pg_column_size(m.data) <= 16384 then m.data end, pg_column_size(m.data),
  case when pg_column_size(m.metadata) <= 16384 then m.metadata ->> 'correlation_id' end,
  case when pg_column_size(m.metadata) <= 16384 then m.metadata ->> 'causation_id' end"""
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


async def messages(
    store: AsyncStore,
    target: str = "$all",
    *,
    type: str | None = None,
    after: str | None = None,
    limit: int = 50,
) -> MessagePage:
    """Return messages of a category, a stream or `$all`, newest first, of one type or of all.

    With a type, a page is found among 5,000 messages, and may be short.
    """
    store.context.require_penstock("the console")
    check_stream_name(target) if target != "$all" else None
    if type is not None:
        check_text("type", type)
    check_page(limit)
    [below] = place(after, int) or (_HIGHEST,)
    axis, rows = _rows_of(target)
    look_at = limit + 1 if type is None else LOOK_AT
    sql: LiteralString = f"""
with looked_at as materialized (
  select m.global_position, m.type, {axis} as at {rows} limit %(look_at)s
), found as (
  select l.global_position, l.at from looked_at l
  where %(type)s::text is null or l.type = %(type)s order by l.at desc limit %(most)s
)
select {COLUMNS}, f.at from found f
join message_store.messages m on m.global_position = f.global_position
union all
-- how many were looked at, the last of them, and the archive
select null, null, null, count(*), min(l.at), null, null,
  null, null, null, penstock.archived_to(%(archived)s)
from looked_at l"""  # noqa: S608
    arguments = {
        "target": target,
        "below": below,
        "look_at": look_at,
        "type": type,
        "most": limit + 1,
        "archived": target if is_category(target) or target == "$all" else names.category(target),
    }
    return await store.run(
        query("messages", sql, arguments, lambda found: _message_page(found, limit, look_at, type))
    )


def _rows_of(target: str) -> tuple[LiteralString, LiteralString]:
    """Return the SQL of a target's positions, and of its messages below one, newest first."""
    if target == "$all":
        return "m.global_position", (
            "from message_store.messages m where m.global_position < %(below)s"
            " order by m.global_position desc"
        )
    if is_category(target):
        return "m.global_position", (
            "from message_store.messages m"
            " where (message_store.category(m.stream_name), m.global_position) >= (%(target)s, 0)"
            " and (message_store.category(m.stream_name), m.global_position)"
            " < (%(target)s, %(below)s)"
            " order by message_store.category(m.stream_name) desc, m.global_position desc"
        )
    return "m.position", (
        "from message_store.messages m where m.stream_name = %(target)s"
        " and m.position < %(below)s order by m.position desc"
    )


def _message_page(rows: list[Row], limit: int, look_at: int, type: str | None) -> MessagePage:
    [(looked_at, last, archived_to)] = [(row[3], row[4], row[10]) for row in rows if row[0] is None]
    found = sorted((row for row in rows if row[0] is not None), key=lambda row: -row[10])
    items = tuple(as_row(row) for row in found[:limit])
    end: str | None
    if len(found) > limit:
        end = cursor(found[limit - 1][10])
    else:
        end = cursor(last) if type is not None and looked_at == look_at else None
    return MessagePage(items, end, found[0][10] if found else 0, archived_to)


def as_row(row: Row) -> MessageRow:
    """Return the message of a row with `COLUMNS`."""
    id, stream_name, type, position, global_position, time, data, size, correlation, causation = (
        row[:10]
    )
    large = data is None and size is not None
    shown = Shown(None, size, True) if large else as_shown(data or {}, size, PREVIEW)
    return MessageRow(
        *(id, stream_name, names.category(stream_name), type, position, global_position),
        *(utc(time), shown, correlation, causation),
    )


def row_of(one: RecordedMessage) -> MessageRow:
    """Return a message that was read, for a list."""
    return MessageRow(
        *(one.id, one.stream_name, one.category, one.type, one.position, one.global_position),
        *(one.time, as_shown(one.data, most=PREVIEW), one.correlation_id, one.causation_id),
    )


async def messages_from(
    store: AsyncStore, target: str = "$all", position: int = 1, limit: int = 50
) -> tuple[MessageRow, ...]:
    """Return messages from a position on, oldest first: also those in the archive.

    Those of many streams end where the log is complete, so that one can go on after the last. The
    position is the global one or, of a stream, that in the stream.
    """
    check_page(limit)
    if target == "$all" or is_category(target):
        read = get_category_messages(store.context, target, position, limit)
    else:
        read = get_stream_messages(store.context, target, position, limit)
    return tuple(row_of(one) for one in await store.run(bounded(read)))


_POSITION_OF: LiteralString = "select global_position from message_store.messages where id = %s"
_AROUND: LiteralString = """
select penstock.watermark(),
  (select m.global_position from message_store.messages m
   where m.stream_name = %(stream)s and m.position < %(position)s order by m.position desc limit 1),
  (select m.global_position from message_store.messages m
   where m.stream_name = %(stream)s and m.position > %(position)s order by m.position limit 1),
  not exists (select from message_store.messages m where m.global_position = %(at)s)"""


async def message(store: AsyncStore, key: int | str | UUID) -> MessageDetail:
    """Return a message by its global position or its id, or raise `MessageNotFound`."""
    one = await recorded(store, key)
    arguments = {"stream": one.stream_name, "position": one.position, "at": one.global_position}
    around = query("message", _AROUND, arguments, lambda rows: rows[0])
    watermark, previous, following, archived = await store.run(around)
    return MessageDetail(
        id=one.id,
        stream_name=one.stream_name,
        category=one.category,
        type=one.type,
        position=one.position,
        global_position=one.global_position,
        time=one.time,
        data=as_shown(one.data),
        metadata=as_shown(one.metadata or {}),
        correlation_id=one.correlation_id,
        causation_id=one.causation_id,
        reply_stream_name=one.reply_stream_name,
        trace_id=one.trace_id,
        archived=archived,
        complete=one.global_position <= watermark,
        previous=previous,
        next=following,
    )


async def recorded(store: AsyncStore, key: int | str | UUID) -> RecordedMessage:
    """Return a message by its global position or its id, archived or not."""
    store.context.require_penstock("the console")
    position = _as_position(key)
    if position is None:
        found = query("message_position", _POSITION_OF, (as_uuid(key),), list)
        rows = await store.run(found)
        if not rows:
            hint = "archived messages are found by their global position only"
            raise MessageNotFound(str(key), hint)
        position = rows[0][0]
    sql: LiteralString = (
        "select id::varchar, stream_name::varchar, type::varchar, position, global_position,"
        " data::varchar, metadata::varchar, time from message_store.messages"
        " where global_position = %s"
    )
    in_table = await store.run(query("message", sql, (position,), store.context.decode))
    if in_table:
        return in_table[0]
    archived_to = await store.run(
        call("archived_to", "select penstock.archived_to('$all')", (), only_value)
    )
    if archived_to is not None and position <= archived_to:
        read = get_category_messages(store.context, "$all", position, 1)
        in_archive = await store.run(read)
        if in_archive and in_archive[0].global_position == position:
            return in_archive[0]
    end = await store.run(end_of_log())
    hint = f"the log ends at {end}" if position > end else "it was removed, or never committed"
    raise MessageNotFound(str(key), hint)


def _as_position(key: int | str | UUID) -> int | None:
    if isinstance(key, str) and key.isascii() and key.isdigit():
        key = int(key)
    return check_position("position", key) if isinstance(key, int) else None


async def whole(store: AsyncStore, key: int | str | UUID) -> bytes:
    """Return a whole message as JSON, however large, for a download."""
    return msgspec.json.encode((await recorded(store, key)).to_dict())


async def position_at(store: AsyncStore, moment: datetime, category: str = "$all") -> int:
    """Return the global position to read from for what was written at or after a moment.

    The head, if nothing was. By bisection: exact if times rise with positions, as they do but for
    transactions that were open at the same time. Archived messages are not looked at.
    """
    check_category(category)
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise ValidationError("moment", moment, "a datetime with a time zone")
    store.context.require_penstock("the console")
    of_category: LiteralString = (
        "(message_store.category(m.stream_name), m.global_position) >= (%(category)s, b.middle)"
        " and (message_store.category(m.stream_name), m.global_position)"
        " <= (%(category)s, 9223372036854775807)"
        " order by message_store.category(m.stream_name), m.global_position"
    )
    of_all: LiteralString = "m.global_position >= b.middle order by m.global_position"
    sql: LiteralString = f"""
with recursive bounds as (
  -- the first message at or after the moment is at `low` or above, and at `high` or below
  select 0::bigint as low, penstock.category_head(%(category)s) as high
  union all
  select case when f.time < %(moment)s then f.global_position + 1 else b.low end,
    case when f.time < %(moment)s then b.high else least(b.middle, b.high) end
  from (select low, high, (low + high) / 2 as middle from bounds where low < high) b
  cross join lateral (
    select m.global_position, m.time from message_store.messages m
    where {of_all if category == "$all" else of_category} limit 1
  ) f
)
select max(low) from bounds"""  # noqa: S608
    # `low` is right after the last message before the moment: the next one is the result
    arguments = {"category": category, "moment": moment.astimezone(UTC).replace(tzinfo=None)}
    return int(await store.run(query("position_at", sql, arguments, only_value)) or 0)


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


def utc(time: datetime) -> datetime:
    """Add the zone to a time, which Message DB stores in UTC without one."""
    return time.replace(tzinfo=UTC)
