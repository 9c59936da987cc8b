"""The outbox and its joins: topics, messages with their attempts, joins with their steps."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from penstock.console.data.pages import Count, Page, Shown
from penstock.store_async import AsyncStore


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic, and how many of its messages are in each state."""

    topic: str
    ready: Count
    in_progress: Count
    failed: Count
    #: None: not known, since done messages are not indexed by topic
    done: Count | None
    #: when its first ready message is or was due
    oldest_due: datetime | None
    #: of its first ready message
    last_error: str | None


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics with messages that are not done, and the totals of all."""

    items: tuple[Topic, ...]
    #: by PostgreSQL's statistics, in any state
    estimated_messages: int
    ready: Count
    in_progress: Count
    failed: Count
    done: Count


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """A message in a list."""

    id: UUID
    topic: str
    #: ready, asleep (until it is woken), in_progress, done or failed
    state: str
    due: datetime | None
    correlation_id: str | None
    attempts: int
    owner: str | None
    lease_until: datetime | None
    last_error: str | None
    created_at: datetime
    finished_at: datetime | None


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
class JoinRow:
    """A join in a list."""

    join_id: UUID
    grouping_key: str | None
    status: str
    expected_steps: int
    attached_steps: int
    completed_steps: int
    failed_steps: int
    times_out_at: datetime | None
    wait_id: UUID | None
    follow_up_id: UUID | None
    created_at: datetime
    updated_at: datetime


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


@dataclass(frozen=True, slots=True)
class Step:
    """A member of a join."""

    message_id: UUID
    #: pending, completed or failed
    status: str
    attached_at: datetime
    #: None: the message was cleaned up
    topic: str | None
    state: str | None
    due: datetime | None
    last_error: str | None


@dataclass(frozen=True, slots=True)
class JoinDetail:
    """A join, its steps, and what it waits for."""

    row: JoinRow
    metadata: str | None
    #: the first 200
    steps: tuple[Step, ...]
    more_steps: bool
    #: such as "2 steps are not finished", "1 step is not attached yet"
    waits_for: tuple[str, ...]
    wait: OutboxRow | None
    follow_up: OutboxRow | None


async def topics(store: AsyncStore) -> Topics:
    """Return the topics with messages that are not done, at most 200."""
    raise NotImplementedError


async def outbox_messages(
    store: AsyncStore,
    topic: str | None = None,
    state: str | None = None,
    after: str | None = None,
    limit: int = 50,
) -> Page[OutboxRow]:
    """Return messages of a topic or of all, in a state or in any.

    Ready ones by due time, failed ones by topic and the time of failure, those in progress by
    lease, done ones the newest first; in any state by id, the newest first.
    """
    raise NotImplementedError


async def outbox_message(store: AsyncStore, id: str | UUID) -> OutboxDetail:
    """Return one message, or raise `OutboxMessageNotFound`."""
    raise NotImplementedError


async def whole_payload(store: AsyncStore, id: str | UUID) -> bytes:
    """Return the bytes of a message's payload, however large, for a download."""
    raise NotImplementedError


async def joins(
    store: AsyncStore, status: str | None = None, after: str | None = None, limit: int = 50
) -> Page[JoinRow]:
    """Return joins, newest first, with a status or with any."""
    raise NotImplementedError


async def join(store: AsyncStore, join_id: str | UUID) -> JoinDetail:
    """Return one join with its steps, or raise `JoinNotFound`."""
    raise NotImplementedError
