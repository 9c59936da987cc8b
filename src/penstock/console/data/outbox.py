"""The messages of the outbox, with their attempts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString
from uuid import UUID

from penstock.console.data.joins import JoinRow, joins_of
from penstock.console.data.outbox_rows import COLUMNS, OutboxRow, as_row
from penstock.console.data.pages import (
    LOOK_AT,
    Page,
    Shown,
    as_shown,
    check_page,
    cursor,
    page,
    place,
    query,
)
from penstock.errors import OutboxMessageNotFound, ValidationError
from penstock.message import as_uuid, check_text
from penstock.outbox.messages import UndecodablePayload, decode_payload
from penstock.store_async import AsyncStore


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
