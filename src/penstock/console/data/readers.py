"""Consumers, queues and their consumers, groups and their partitions; and what a move would do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from penstock.console.data.pages import Count, Page
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
class Partition:
    """A partition of a group."""

    group_id: str
    partition_key: str
    #: claimed, parked, ready, delayed or idle
    state: str
    last_position: int
    #: of its first unhandled message
    next_position: int | None
    claimed_by: str | None
    claimed_at: datetime | None
    #: when its lease or its delay ends
    due: datetime | None
    attempts: int
    error: str | None
    parked_at: datetime | None


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


async def consumers(
    store: AsyncStore, after: str | None = None, limit: int = 100
) -> Page[Consumer]:
    """Return the consumers that have stored a position, by category and id."""
    raise NotImplementedError


async def consumer(store: AsyncStore, category: str, consumer_id: str) -> Consumer:
    """Return one consumer, or raise `ReaderNotFound`."""
    raise NotImplementedError


async def queue_consumers(
    store: AsyncStore, after: str | None = None, limit: int = 100
) -> Page[QueueConsumer]:
    """Return the consumers of queues, by queue and id."""
    raise NotImplementedError


async def groups(store: AsyncStore, after: str | None = None, limit: int = 100) -> Page[Group]:
    """Return the groups by name."""
    raise NotImplementedError


async def group(store: AsyncStore, group_id: str) -> Group:
    """Return one group, or raise `GroupNotFound`."""
    raise NotImplementedError


async def partitions(
    store: AsyncStore,
    group_id: str,
    state: str | None = None,
    after: str | None = None,
    limit: int = 100,
) -> Page[Partition]:
    """Return partitions: pending, ready, claimed, delayed or parked ones, the oldest first; or all.

    All of them come in no particular order.
    """
    raise NotImplementedError


async def partition(store: AsyncStore, group_id: str, partition_key: str) -> Partition:
    """Return one partition by its key, such as `course:Algebra|user:joe`."""
    raise NotImplementedError


async def preview_seek(
    store: AsyncStore, category: str, consumer_id: str, position: int
) -> Preview:
    """Say what moving a consumer to just after a global position would do."""
    raise NotImplementedError


async def preview_replay(
    store: AsyncStore, category: str, consumer_id: str, position: int = 1
) -> Preview:
    """Say what handling messages again from a global position on would do."""
    raise NotImplementedError


async def preview_seek_queue(
    store: AsyncStore, queue: str, consumer_id: str, next_offset: int
) -> Preview:
    """Say what moving a queue's consumer would do."""
    raise NotImplementedError


async def preview_reset(store: AsyncStore, group_id: str) -> Preview:
    """Say what resetting a group would do."""
    raise NotImplementedError
