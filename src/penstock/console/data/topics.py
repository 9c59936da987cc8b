"""The topics of the outbox, and how many of their messages are in each state."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString, NamedTuple

from penstock.console.data.pages import Count, counted, query
from penstock.database.operation import Row
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
    #: the error of the message that failed last
    last_failure: str | None


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
  penstock.readable_moment(first.due), left(first.last_error, 2000), (
    select left(o.last_error, 2000) from penstock.outbox o
    where o.state = 'failed' and o.topic = t.topic
    order by o.topic desc, o.finished_at desc limit 1)
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
    topic, ready, busy, failed, done, due, error, failure = row
    # those in progress and done are looked for among the first 1,000 of all topics
    in_progress = Count(busy, of_all.in_progress.at_least)
    counts = counted(ready), in_progress, counted(failed), Count(done, of_all.done.at_least)
    return Topic(topic, *counts, due, error, failure)
