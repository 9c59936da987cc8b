"""The outbox: its topics, and its messages with their attempts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString, NamedTuple
from uuid import UUID

from penstock.console.data.joins import JoinRow, joins_of
from penstock.console.data.outbox_rows import COLUMNS, OutboxRow, as_row
from penstock.console.data.pages import (
    LOOK_AT,
    Count,
    Page,
    Shown,
    as_shown,
    check_page,
    counted,
    cursor,
    page,
    place,
    query,
)
from penstock.database.operation import Row
from penstock.errors import OutboxMessageNotFound, ValidationError
from penstock.message import as_uuid, check_text
from penstock.outbox.messages import UndecodablePayload, decode_payload
from penstock.store_async import AsyncStore


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic, and how many of its messages are in each state."""

    topic: str
    ready: Count
    in_progress: Count
    failed: Count
    #: among the newest 1,000 that are done: they are not indexed by topic
    done: Count
    #: when its first ready message is or was due
    oldest_due: datetime | None
    #: of its first ready message
    last_error: str | None


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics with messages that wait or failed, or were done lately; and the totals of all."""

    items: tuple[Topic, ...]
    #: by PostgreSQL's statistics, in any state
    estimated_messages: int
    ready: Count
    in_progress: Count
    failed: Count
    done: Count


@dataclass(frozen=True, slots=True)
class Moment:
    """One point of a message's timeline."""

    #: enqueued, due, claimed, lease ends, finished
    what: str
    #: None: the database does not keep when
    time: datetime | None
    detail: str | None
    #: whether it is still to come
    future: bool = False


@dataclass(frozen=True, slots=True)
class OutboxDetail:
    """One message of the outbox."""

    row: OutboxRow
    payload: Shown
    #: text, json or bytes
    encoding: str
    dedupe_key: str | None
    #: the database keeps the number of attempts and the last error, not the times of earlier ones
    timeline: tuple[Moment, ...]
    #: the joins that it is a pending step of, and those found among the newest 500
    joins: tuple[JoinRow, ...]


STATES = ("ready", "asleep", "in_progress", "done", "failed")
_TOPICS: LiteralString = """
with recursive ready as (
  (select o.topic from penstock.outbox o where o.state = 'ready' order by o.topic limit 1)
  union all
  select later.topic from ready cross join lateral (
    select o.topic from penstock.outbox o
    where o.state = 'ready' and o.topic > ready.topic order by o.topic limit 1) later
), failed as (
  (select o.topic from penstock.outbox o where o.state = 'failed' order by o.topic limit 1)
  union all
  select later.topic from failed cross join lateral (
    select o.topic from penstock.outbox o
    where o.state = 'failed' and o.topic > failed.topic order by o.topic limit 1) later
), busy as materialized (
  select o.topic from penstock.outbox o
  where o.state = 'in_progress' order by o.lease_until limit 1000
), done as materialized (
  select o.topic from penstock.outbox o
  where o.state = 'done' order by o.finished_at desc limit 1000
), topics as materialized (
  select topic from (
    (select topic from ready limit 200) union (select topic from failed limit 200)
    union select topic from busy union select topic from done) t
  order by 1 limit 200
)
select t.topic,
  (select count(*) from (select from penstock.outbox o
     where o.state = 'ready' and o.topic = t.topic order by o.topic, o.due limit 1000) c),
  (select count(*) from busy b where b.topic = t.topic),
  (select count(*) from (select from penstock.outbox o
     where o.state = 'failed' and o.topic = t.topic order by o.topic limit 1000) c),
  (select count(*) from done d where d.topic = t.topic),
  penstock.readable_moment(first.due), left(first.last_error, 2000)
from topics t
left join lateral (
  select o.due, o.last_error from penstock.outbox o
  where o.state = 'ready' and o.topic = t.topic order by o.topic, o.due, o.id limit 1
) first on true
order by 1"""
_TOTALS: LiteralString = """
select (select greatest(c.reltuples, 0)::bigint from pg_catalog.pg_class c
    where c.oid = 'penstock.outbox'::regclass),
  (select count(*) from (select from penstock.outbox o
     where o.state = 'ready' and o.topic <> '' order by o.due, o.id limit 1000) c),
  (select count(*) from (select from penstock.outbox o
     where o.state = 'in_progress' order by o.lease_until limit 1000) c),
  (select count(*) from (select from penstock.outbox o
     where o.state = 'failed' order by o.topic, o.finished_at limit 1000) c),
  (select count(*) from (select from penstock.outbox o
     where o.state = 'done' order by o.finished_at limit 1000) c)"""


async def topics(store: AsyncStore) -> Topics:
    """Return the topics with messages, at most 200, and totals."""
    store.context.require_penstock("the outbox")
    totals = await store.run(query("outbox_totals", _TOTALS, (), lambda rows: rows[0]))
    rows = await store.run(query("topics", _TOPICS, (), list))
    estimated, *counts = totals
    of_all = _OfAll(*(counted(one) for one in counts))
    items = tuple(_topic(row, of_all) for row in rows)
    return Topics(items, estimated, *of_all)


class _OfAll(NamedTuple):
    """The messages of all topics, by state."""

    ready: Count
    in_progress: Count
    failed: Count
    done: Count


def _topic(row: Row, of_all: _OfAll) -> Topic:
    topic, ready, busy, failed, done, due, error = row
    # those in progress and done are looked for among the first 1,000 of all topics
    in_progress = Count(busy, of_all.in_progress.at_least)
    counts = counted(ready), in_progress, counted(failed), Count(done, of_all.done.at_least)
    return Topic(topic, *counts, due, error)


@dataclass(frozen=True, slots=True)
class _Listing:
    """How messages in a state are listed: along which index, and from which place on."""

    #: the condition of the index
    where: LiteralString
    #: the columns of the place, and their types
    key: LiteralString
    types: tuple[Any, ...]
    order: LiteralString = ""
    comparison: LiteralString = ">"
    #: what the index is searched by besides, if it does not have all columns of the place
    bound: LiteralString = "true"
    #: whether the index has the messages of one topic together
    by_topic: bool = False


_ANY = _Listing("true", "o.id", (UUID,), "desc", "<")
_LISTINGS = {
    (False, "ready"): _Listing(
        "o.state = 'ready' and o.topic <> '' and o.due is not null", "o.due, o.id", (datetime, UUID)
    ),
    (True, "ready"): _Listing(
        "o.state = 'ready' and o.topic = %(topic)s and o.due is not null",
        *("o.due, o.id", (datetime, UUID)),
        by_topic=True,
    ),
    (False, "asleep"): _Listing(
        "o.state = 'ready' and o.topic <> '' and o.due is null", "o.id", (UUID,)
    ),
    (True, "asleep"): _Listing(
        "o.state = 'ready' and o.topic = %(topic)s and o.due is null",
        *("o.id", (UUID,)),
        by_topic=True,
    ),
    (False, "failed"): _Listing(
        "o.state = 'failed'",
        "o.topic, o.finished_at, o.id",
        (str, datetime, UUID),
        bound="(o.topic, o.finished_at) >= (%(p0)s, %(p1)s)",
    ),
    (True, "failed"): _Listing(
        "o.state = 'failed' and o.topic = %(topic)s",
        "o.finished_at, o.id",
        (datetime, UUID),
        bound="o.finished_at >= %(p0)s",
        by_topic=True,
    ),
    (False, "in_progress"): _Listing(
        "o.state = 'in_progress'",
        "o.lease_until, o.id",
        (datetime, UUID),
        bound="o.lease_until >= %(p0)s",
    ),
    (False, "done"): _Listing(
        "o.state = 'done'",
        "o.finished_at, o.id",
        (datetime, UUID),
        "desc",
        "<",
        bound="o.finished_at <= %(p0)s",
    ),
}


async def outbox_messages(
    store: AsyncStore,
    topic: str | None = None,
    state: str | None = None,
    after: str | None = None,
    limit: int = 50,
) -> Page[OutboxRow]:
    """Return messages of a topic or of all, in a state or in any.

    Ready ones by due time, failed ones by topic and the time of failure, those in progress by
    lease, done ones the newest first; in any state by id, the newest first. Where a topic is not
    indexed, a page is found among 5,000 messages, and may be short.
    """
    store.context.require_penstock("the outbox")
    if state is not None and state not in STATES:
        raise ValidationError("state", state, f"one of {', '.join(STATES)}")
    if topic is not None:
        check_text("topic", topic)
    check_page(limit)
    listing = _LISTINGS.get(
        (topic is not None, state or ""), _LISTINGS.get((False, state or ""), _ANY)
    )
    filtered = topic is not None and not listing.by_topic
    start = place(after, *listing.types)
    key: LiteralString = ", ".join(f"%(p{number})s" for number in range(len(listing.types)))
    beyond: LiteralString = (
        "true"
        if start is None
        else f"{listing.bound} and ({listing.key}) {listing.comparison} ({key})"
    )
    order: LiteralString = ", ".join(f"{one} {listing.order}" for one in listing.key.split(", "))
    look_at = LOOK_AT if filtered else limit + 1
    sql: LiteralString = f"""
with looked_at as materialized (
  select o.* from penstock.outbox o where {listing.where} and {beyond}
  order by {order} limit %(look_at)s
)
select {COLUMNS}, {listing.key} from looked_at o
where %(topic)s::text is null or o.topic = %(topic)s
order by {order} limit %(most)s"""  # noqa: S608
    last: LiteralString = f"""
select {listing.key} from penstock.outbox o where {listing.where} and {beyond}
order by {order} offset %(look_at)s - 1 limit 1"""  # noqa: S608
    arguments = {
        "topic": topic,
        "look_at": look_at,
        "most": limit + 1,
        **{f"p{number}": value for number, value in enumerate(start or ())},
    }
    found = await store.run(
        query(
            "outbox_messages",
            sql,
            arguments,
            lambda rows: page(rows, limit, as_row, lambda row: row[11:]),
        )
    )
    if found.next is None and filtered:
        rows = await store.run(query("outbox_messages", last, arguments, list))
        if rows:
            return Page(found.items, cursor(*rows[0]))
    return found


async def outbox_message(store: AsyncStore, id: str | UUID) -> OutboxDetail:
    """Return one message, or raise `OutboxMessageNotFound`."""
    store.context.require_penstock("the outbox")
    sql: LiteralString = f"""
select {COLUMNS}, o.payload, o.encoding, o.dedupe_key, clock_timestamp()
from penstock.outbox o where o.id = %s"""  # noqa: S608
    rows = await store.run(query("outbox_message", sql, (as_uuid(id),), list))
    if not rows:
        raise OutboxMessageNotFound(str(id))
    *columns, payload, encoding, dedupe_key, now = rows[0]
    row = as_row(tuple(columns))
    return OutboxDetail(
        row=row,
        payload=shown_payload(payload, encoding),
        encoding=encoding,
        dedupe_key=dedupe_key,
        timeline=_timeline(row, now),
        joins=await joins_of(store, row.id),
    )


def shown_payload(payload: bytes, encoding: str) -> Shown:
    """Return a payload to show."""
    decoded = decode_payload(payload, encoding)
    value = decoded.raw if isinstance(decoded, UndecodablePayload) else decoded
    return as_shown(value, len(payload))


def _timeline(row: OutboxRow, now: datetime) -> tuple[Moment, ...]:
    """Return what the database keeps of a message's life, in order."""
    moments = [Moment("enqueued", row.created_at, None)]
    if row.state in ("ready", "asleep"):
        failed = f"attempt {row.attempts} failed: {row.last_error}"
        if row.attempts:
            moments.append(Moment("attempted", None, failed if row.last_error else None))
        said = row.last_error if not row.attempts else None
        if row.due is None:
            moments.append(Moment("asleep until it is woken", None, said, future=True))
        else:
            moments.append(Moment("due", row.due, said, future=row.due > now))
    elif row.attempts:
        earlier = f", after {row.attempts - 1} earlier attempts" if row.attempts > 1 else ""
        by = f"attempt {row.attempts}{earlier}" + (f", by {row.owner}" if row.owner else "")
        moments.append(Moment("claimed", None, by))
    if row.state == "in_progress" and row.lease_until is not None:
        moments.append(Moment("lease ends", row.lease_until, row.last_error, row.lease_until > now))
    if row.finished_at is not None:
        moments.append(Moment(row.state, row.finished_at, row.last_error))
    return tuple(moments)


async def whole_payload(store: AsyncStore, id: str | UUID) -> bytes:
    """Return the bytes of a message's payload, however large, for a download."""
    sql: LiteralString = "select payload from penstock.outbox where id = %s"
    rows = await store.run(query("payload", sql, (as_uuid(id),), list))
    if not rows:
        raise OutboxMessageNotFound(str(id))
    return bytes(rows[0][0])
