"""The log: categories, streams, messages; by position, time, id, type, attribute, correlation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from penstock.console.data.pages import Page, Shown
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
    #: the highest global position (or position, of a stream) when it was read: newer ones come after
    head: int
    #: older ones than the last page are in the archive: read those with `messages_from`
    archived_to: int | None


@dataclass(frozen=True, slots=True)
class Found:
    """What a search has found, newest first, and what it did not look at."""

    items: tuple[MessageRow, ...]
    next: str | None
    #: whether everything was looked at that the database holds
    complete: bool
    #: in words, for instance "the newest 5,000 messages were looked at"
    looked_at: str


@dataclass(frozen=True, slots=True)
class DeclaredType:
    """A message type whose attributes are indexed, so that it can be searched for."""

    type: str
    attributes: tuple[str, ...]


async def categories(
    store: AsyncStore, after: str | None = None, limit: int = 100
) -> Page[Category]:
    """Return categories by name."""
    raise NotImplementedError


async def streams(
    store: AsyncStore, category: str, after: str | None = None, limit: int = 100
) -> Page[Stream]:
    """Return the streams of a category by name."""
    raise NotImplementedError


async def messages(
    store: AsyncStore,
    target: str = "$all",
    *,
    type: str | None = None,
    after: str | None = None,
    limit: int = 50,
) -> MessagePage:
    """Return messages of a category, a stream or `$all`, newest first, of one type or of all."""
    raise NotImplementedError


async def messages_from(
    store: AsyncStore, target: str = "$all", position: int = 1, limit: int = 50
) -> tuple[MessageRow, ...]:
    """Return messages from a position on, oldest first: also those in the archive.

    For `follow`: only messages that are complete. The position is the global one or, of a stream,
    that in the stream.
    """
    raise NotImplementedError


async def message(store: AsyncStore, key: int | str | UUID) -> MessageDetail:
    """Return a message by its global position or its id, or raise `MessageNotFound`."""
    raise NotImplementedError


async def whole(store: AsyncStore, key: int | str | UUID) -> bytes:
    """Return a whole message as JSON, however large, for a download."""
    raise NotImplementedError


async def position_at(store: AsyncStore, moment: datetime, category: str = "$all") -> int:
    """Return the global position of the first message that was written at or after a moment.

    The head, if there is none. By bisection: exact if times rise with positions, as they do but
    for transactions that were open at the same time.
    """
    raise NotImplementedError


async def declared_types(store: AsyncStore) -> tuple[DeclaredType, ...]:
    """Return the types with indexed attributes, at most 1,000."""
    raise NotImplementedError


async def search(
    store: AsyncStore,
    *,
    type: str | None = None,
    attributes: Mapping[str, str] | None = None,
    correlation: str | None = None,
    id: str | None = None,
    after: str | None = None,
    limit: int = 50,
) -> Found:
    """Return messages by id, by correlation, or by type and attributes."""
    raise NotImplementedError
