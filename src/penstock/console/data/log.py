"""The log: messages of all, of a category or of a stream, by position or by time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import LiteralString
from uuid import UUID

from penstock.console.data.pages import (
    LOOK_AT,
    Shown,
    as_shown,
    bounded,
    check_page,
    cursor,
    place,
    query,
)
from penstock.database.operation import Row, only_value
from penstock.errors import ValidationError
from penstock.log.read import get_category_messages, get_stream_messages
from penstock.log.write import check_category, check_stream_name
from penstock.message import RecordedMessage, check_text, names
from penstock.message.names import is_category
from penstock.store_async import AsyncStore


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
class MessagePage:
    """Messages, newest first."""

    items: tuple[MessageRow, ...]
    #: pass it as `after` for older ones
    next: str | None
    #: the highest position (in the log or, of a stream, in that) when it was read
    head: int
    #: older ones than the last page are in the archive: read those with `messages_from`
    archived_to: int | None


#: a larger value is not sent for a list: bytes, as it is stored
LARGE = 16_384


#: values of a message that a list shows
PREVIEW = 50


_HIGHEST = 2**63 - 1


COLUMNS: LiteralString = """
  m.id, m.stream_name, m.type, m.position, m.global_position, m.time,
  case when pg_column_size(m.data) <= 16384 then m.data end, pg_column_size(m.data),
  case when pg_column_size(m.metadata) <= 16384 then m.metadata ->> 'correlation_id' end,
  case when pg_column_size(m.metadata) <= 16384 then m.metadata ->> 'causation_id' end"""


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


async def position_at(store: AsyncStore, moment: datetime, category: str = "$all") -> int:
    """Return the global position to read from for what was written at or after a moment.

    After the head, if nothing was. By bisection: exact if times rise with positions, as they do but
    for transactions that were open at the same time. Archived messages are not looked at.
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
  select 0::bigint as low, penstock.category_head(%(category)s) + 1 as high
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


def utc(time: datetime) -> datetime:
    """Add the zone to a time, which Message DB stores in UTC without one."""
    return time.replace(tzinfo=UTC)
