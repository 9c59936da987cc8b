"""Consumers of categories, and of queues."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString

from penstock.console.data.pages import Count, Page, check_page, counted, page, place, query
from penstock.consumers.positions import StreamPositions, TablePositions
from penstock.database.operation import Row
from penstock.errors import ReaderNotFound
from penstock.log.write import check_category
from penstock.message import check_text
from penstock.queues.operations import queue_of, stream_of
from penstock.store_async import AsyncStore


@dataclass(frozen=True, slots=True)
class Consumer:
    """A consumer of a category."""

    category: str
    consumer_id: str
    #: stream or table
    kept_in: str
    position: int | None
    head: int
    behind: Count
    seconds_behind: float
    updated_at: datetime
    parked: Count
    #: of its newest parked message
    last_error: str | None


@dataclass(frozen=True, slots=True)
class QueueConsumer:
    """A consumer of a queue."""

    queue: str
    stream_name: str
    consumer_id: str
    next_offset: int
    tail: int
    behind: int
    seconds_behind: float
    updated_at: datetime


#: the columns of a consumer `n`, of a category and an id, whose position is in a table or stream
_CONSUMER: LiteralString = """
select n.category, n.consumer_id, n.kept_in, n.position, h.head, w.behind,
  penstock.seconds_since(w.since), n.updated_at, p.parked, p.error
from chosen n
cross join lateral (select penstock.category_head(n.category) as head) h
cross join lateral (
  -- its backlog, counted up to a limit
  select count(*) as behind, min(w.time) as since from (
    (select m.time from message_store.messages m
     where n.category <> '$all'
       and (message_store.category(m.stream_name), m.global_position)
         > (n.category, coalesce(n.position, 0))
       and (message_store.category(m.stream_name), m.global_position)
         <= (n.category, 9223372036854775807)
     order by message_store.category(m.stream_name), m.global_position limit 1000)
    union all
    (select m.time from message_store.messages m
     where n.category = '$all' and m.global_position > coalesce(n.position, 0)
       and not penstock.is_bookkeeping(m.stream_name)
     order by m.global_position limit 1000)
  ) w
) w
cross join lateral (
  -- its parked messages, by the last entries of their stream, and the newest error
  select count(*) filter (where e.waits) as parked,
    (array_agg(e.error order by e.at desc) filter (where e.waits))[1] as error
  from (
    select max(e.position) as at,
      (array_agg(e.error order by e.position desc) filter (where e.error is not null))[1] as error,
      coalesce(max(e.position) filter (where e.type = 'Parked')
        > coalesce(max(e.position) filter (where e.type in ('Handled', 'Dropped')), -1), false)
        as waits
    from (
      select m.type, m.position, left(m.data ->> 'error', 1000) as error,
        coalesce(m.data #>> '{message,global_position}', m.data ->> 'global_position') as parked
      from message_store.messages m
      where m.stream_name = n.category || ':parked-' || n.consumer_id
      order by m.position desc limit 1000
    ) e
    group by e.parked
  ) e
) p
order by 1, 2"""


#: where consumers have their positions
_STORED: LiteralString = """
  select message_store.category(p.consumer_id) as category,
    message_store.id(p.consumer_id) as consumer_id, 'table' as kept_in, p.position, p.updated_at
  from {positions} p
  union all
  select s.category, s.consumer_id, 'stream', penstock.position_in(last.data),
    last.time at time zone 'utc'
  from {streams} s
  cross join lateral (
    select m.data, m.time from message_store.messages m
    where m.stream_name = s.stream_name order by m.position desc limit 1
  ) last
  where penstock.latest_position(s.category || '-' || s.consumer_id) is null"""


_ALL_CONSUMERS: LiteralString = (
    "with stored as materialized ("  # noqa: S608
    + _STORED.replace("{positions}", "penstock.all_positions()").replace(
        "{streams}", "penstock.streams_of_consumers('position')"
    )
    + """
), chosen as materialized (
  select * from stored s where (s.category, s.consumer_id) > (%s, %s) order by 1, 2 limit %s
)"""
    + _CONSUMER
)


_ONE_CONSUMER: LiteralString = (
    "with chosen as materialized ("  # noqa: S608
    + _STORED.replace(
        "{positions}",
        "(select l.* from penstock.latest_position(%(key)s) l where l.consumer_id is not null)",
    ).replace(
        "{streams}",
        "(select %(category)s::varchar as category, %(id)s::varchar as consumer_id,"
        " %(stream)s::varchar as stream_name)",
    )
    + ")"
    + _CONSUMER
)


async def consumers(
    store: AsyncStore, after: str | None = None, limit: int = 100
) -> Page[Consumer]:
    """Return the consumers that have stored a position, by category and id."""
    store.context.require_penstock("listing consumers")
    check_page(limit)
    return await store.run(
        query(
            "consumers",
            _ALL_CONSUMERS,
            (*(place(after, str, str) or ("", "")), limit + 1),
            lambda rows: page(rows, limit, _consumer, lambda row: row[:2]),
        )
    )


async def consumer(store: AsyncStore, category: str, consumer_id: str) -> Consumer:
    """Return one consumer, or raise `ReaderNotFound`."""
    store.context.require_penstock("listing consumers")
    check_category(category)
    arguments = {
        "category": category,
        "id": check_text("consumer_id", consumer_id),
        "key": TablePositions(category, consumer_id).key,
        "stream": StreamPositions(category, consumer_id).stream_name,
    }
    rows = await store.run(query("consumer", _ONE_CONSUMER, arguments, list))
    if not rows:
        raise ReaderNotFound(f"consumer {consumer_id!r} of {category}")
    return _consumer(rows[0])


def _consumer(row: Row) -> Consumer:
    category, consumer_id, kept_in, position, head, behind, seconds, updated, parked, error = row
    return Consumer(
        *(category, consumer_id, kept_in, position, head, counted(behind)),
        *(seconds, updated, counted(parked), error),
    )


_SESSIONS: LiteralString = """
with chosen as materialized (
  select s.* from penstock.all_sessions() s
  where (s.stream_name, s.consumer_id) > (%s, %s) order by s.stream_name, s.consumer_id limit %s
)
select s.stream_name, s.consumer_id, s.next_offset, t.tail,
  penstock.seconds_since((
    select m.time from message_store.messages m
    where m.stream_name = s.stream_name and m.position >= s.next_offset
    order by m.position limit 1)), s.updated_at
from chosen s
cross join lateral (select penstock.tail(s.stream_name::varchar) as tail) t
order by 1, 2"""


async def queue_consumers(
    store: AsyncStore, after: str | None = None, limit: int = 100
) -> Page[QueueConsumer]:
    """Return the consumers of queues, by queue and id."""
    store.context.require_penstock("listing sessions")
    check_page(limit)
    return await store.run(
        query(
            "queue_consumers",
            _SESSIONS,
            (*(place(after, str, str) or ("", "")), limit + 1),
            lambda rows: page(rows, limit, _queue_consumer, lambda row: row[:2]),
        )
    )


async def queue_consumer(store: AsyncStore, queue: str, consumer_id: str) -> QueueConsumer:
    """Return one consumer of a queue, or raise `ReaderNotFound`."""
    stream_name = stream_of(queue)
    check_text("consumer_id", consumer_id)
    sql = _SESSIONS.replace(
        "from penstock.all_sessions() s\n  where (s.stream_name, s.consumer_id) > (%s, %s)",
        "from penstock.latest_session(%s, %s, false) s where s.stream_name is not null",
    )
    found = query("queue_consumer", sql, (stream_name, consumer_id, 1), list)
    rows = await store.run(found)
    if not rows:
        raise ReaderNotFound(f"consumer {consumer_id!r} of the queue {queue}")
    return _queue_consumer(rows[0])


def _queue_consumer(row: Row) -> QueueConsumer:
    stream_name, consumer_id, next_offset, tail, seconds, updated = row
    behind = max(0, tail - next_offset)
    return QueueConsumer(
        *(queue_of(stream_name), stream_name, consumer_id, next_offset, tail, behind),
        *(seconds, updated),
    )
