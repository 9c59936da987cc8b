"""Consumers, queues with their consumers, and groups; and what moving one would do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString

from penstock.admin.readers import end_of_log
from penstock.console.data.pages import Count, Page, check_page, counted, page, place, query
from penstock.consumers.positions import StreamPositions, TablePositions
from penstock.database.operation import Row, only_value
from penstock.errors import GroupNotFound, ReaderNotFound
from penstock.log.context import check_position
from penstock.log.write import check_category
from penstock.message import check_text
from penstock.queues.operations import check_offset, queue_of, stream_of
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


@dataclass(frozen=True, slots=True)
class Preview:
    """What an action would do, to be confirmed."""

    #: one sentence
    summary: str
    #: more, one sentence each
    details: tuple[str, ...]
    #: what to pass to the action, so that it is refused if things have changed meanwhile
    expected: int | str | None
    #: why it would be refused; None if it would not
    refused: str | None = None


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


async def preview_seek(
    store: AsyncStore, category: str, consumer_id: str, position: int
) -> Preview:
    """Say what moving a consumer to just after a global position would do."""
    check_position("position", position)
    one = await consumer(store, category, consumer_id)
    end = await store.run(end_of_log())
    now = one.position or 0
    whose = f"{consumer_id} of {category}"
    refused = (
        None if position <= end else f"position {position} is beyond {end}, the end of the log"
    )
    details: tuple[str, ...]
    if position == now:
        summary, details = f"{whose} is at {position} already: nothing changes", ()
    elif position < now:
        between = await _count(store, category, position, min(now, end))
        summary = f"{whose} goes back from {now} to {position}"
        details = (f"{between} messages are handled again",)
    else:
        between = await _count(store, category, now, min(position, end))
        summary = f"{whose} skips from {now} to {position}"
        details = (f"{between} messages are not handled",)
    running = "if it runs, it stops at its next save; started again, it goes on there"
    return Preview(summary, (*details, running), one.position, refused)


async def preview_replay(
    store: AsyncStore, category: str, consumer_id: str, position: int = 1
) -> Preview:
    """Say what handling messages again from a global position on would do."""
    check_position("position", position, 1)
    seen = await preview_seek(store, category, consumer_id, position - 1)
    if position - 1 > int(seen.expected or 0):
        refused = f"{consumer_id} is at {seen.expected}: to begin at {position} would skip messages"
        return Preview(seen.summary, seen.details, seen.expected, refused)
    return seen


async def preview_seek_queue(
    store: AsyncStore, queue: str, consumer_id: str, next_offset: int
) -> Preview:
    """Say what moving a queue's consumer would do."""
    check_offset("next_offset", next_offset)
    one = await queue_consumer(store, queue, consumer_id)
    between = abs(next_offset - one.next_offset)
    refused = None
    if next_offset > one.tail:
        refused = f"offset {next_offset} is beyond {one.tail}, the tail of the queue"
    if next_offset < one.next_offset:
        summary = f"{consumer_id} of {queue} goes back from {one.next_offset} to {next_offset}"
        details = (f"{between:,} records are read again",)
    else:
        summary = f"{consumer_id} of {queue} skips from {one.next_offset} to {next_offset}"
        details = (f"{between:,} records are not read",)
    fenced = "an open session is fenced: its next call fails"
    return Preview(summary, (*details, fenced), one.next_offset, refused)


async def preview_reset(store: AsyncStore, group_id: str) -> Preview:
    """Say what resetting a group would do."""
    one = await group(store, group_id)
    details = (
        f"{one.partitions} partitions begin again at the start of the log",
        f"{one.claimed} claims become stale: what their workers do now is not acknowledged",
        f"{one.parked} parked partitions are no longer parked",
    )
    summary = f"{group_id}, which has read up to {one.routed_to}, handles all messages again"
    return Preview(summary, details, one.routed_to)


async def _count(store: AsyncStore, category: str, after: int, until: int) -> Count:
    """Count the messages of a category between two positions, up to a limit."""
    where: LiteralString = (
        "m.global_position > %(after)s and m.global_position <= %(until)s"
        " and not penstock.is_bookkeeping(m.stream_name) order by m.global_position"
        if category == "$all"
        else "(message_store.category(m.stream_name), m.global_position)"
        " > (%(category)s, %(after)s)"
        " and (message_store.category(m.stream_name), m.global_position)"
        " <= (%(category)s, %(until)s)"
        " order by message_store.category(m.stream_name), m.global_position"
    )
    sql: LiteralString = (
        "select count(*) from (select from message_store.messages m"  # noqa: S608
        f" where {where} limit 1000) c"
    )
    arguments = {"category": category, "after": after, "until": until}
    return counted(await store.run(query("count", sql, arguments, only_value)))
