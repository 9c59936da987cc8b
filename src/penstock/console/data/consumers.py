"""Consumers of categories, and of queues, as they are shown."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from penstock.admin import backlogs
from penstock.admin.backlogs import START, ConsumerStatus, SessionStatus
from penstock.console.data.pages import (
    COUNT_UP_TO,
    Count,
    Page,
    bounded,
    check_page,
    counted,
    page,
    place,
)
from penstock.errors import ReaderNotFound
from penstock.queues.operations import stream_of
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
    behind: Count
    seconds_behind: float
    updated_at: datetime


async def consumers(
    store: AsyncStore, after: str | None = None, limit: int = 100
) -> Page[Consumer]:
    """Return the consumers that have stored a position, by category and id."""
    check_page(limit)
    start = place(after, str, str) or START
    listed = backlogs.consumers(store.context, COUNT_UP_TO, start, limit + 1)
    found = await store.run(bounded(listed))
    return page(found, limit, _consumer, lambda one: (one.category, one.consumer_id))


async def consumer(store: AsyncStore, category: str, consumer_id: str) -> Consumer:
    """Return one consumer, or raise `ReaderNotFound`."""
    asked = backlogs.consumer(store.context, category, consumer_id, COUNT_UP_TO)
    found = await store.run(bounded(asked))
    if found is None:
        raise ReaderNotFound(f"consumer {consumer_id!r} of {category}")
    return _consumer(found)


def _consumer(one: ConsumerStatus) -> Consumer:
    return Consumer(
        category=one.category,
        consumer_id=one.consumer_id,
        kept_in=one.kept_in,
        position=one.position,
        head=one.head,
        behind=counted(one.behind),
        seconds_behind=one.seconds_behind,
        updated_at=one.updated_at,
        parked=Count(one.parked, one.parked_at_least and one.parked > 0),
        last_error=one.last_error,
    )


async def queue_consumers(
    store: AsyncStore, after: str | None = None, limit: int = 100
) -> Page[QueueConsumer]:
    """Return the consumers of queues, by queue and id."""
    check_page(limit)
    start = place(after, str, str) or START
    found = await store.run(
        bounded(backlogs.sessions(store.context, COUNT_UP_TO, start, limit + 1))
    )
    return page(found, limit, _queue_consumer, lambda one: (one.queue, one.consumer_id))


async def queue_consumer(store: AsyncStore, queue: str, consumer_id: str) -> QueueConsumer:
    """Return one consumer of a queue, or raise `ReaderNotFound`."""
    asked = backlogs.session(store.context, queue, consumer_id, COUNT_UP_TO)
    found = await store.run(bounded(asked))
    if found is None:
        raise ReaderNotFound(f"consumer {consumer_id!r} of the queue {queue}")
    return _queue_consumer(found)


def _queue_consumer(one: SessionStatus) -> QueueConsumer:
    return QueueConsumer(
        queue=one.queue,
        stream_name=stream_of(one.queue),
        consumer_id=one.consumer_id,
        next_offset=one.next_offset,
        tail=one.tail,
        behind=counted(one.behind),
        seconds_behind=one.seconds_behind,
        updated_at=one.updated_at,
    )
