"""Dead letters: failed outbox messages, parked messages and partitions, errors queues.

A dead letter has a key: `outbox/{id}`, `parked/{category}/{consumer_id}/{global_position}`,
`partition/{group_id}/{partition_key}` or `error/{global_position}`, its parts percent-encoded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.console.data.pages import Count, Shown
from penstock.store_async import AsyncStore

#: outbox: a failed message; parked: a message that a consumer has parked; partition: a parked
#: partition of a group; error: a message in an errors queue of a pipeline
KINDS = ("outbox", "parked", "partition", "error")


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Something that could not be handled."""

    key: str
    kind: str
    #: the topic, the consumer, the group or the errors queue
    where: str
    #: its id, its global position or its partition key
    what: str
    type: str | None
    error: str | None
    attempts: int | None
    failed_at: datetime | None
    #: retry, drop, edit: what can be done with it
    actions: tuple[str, ...]
    #: "retry requested": what was done already
    note: str | None = None


@dataclass(frozen=True, slots=True)
class DeadLetterDetail:
    """A dead letter with its data."""

    letter: DeadLetter
    data: Shown
    metadata: Shown
    #: global position of the message in the log, if it has one
    global_position: int | None
    #: what retry, drop and edit would do, one sentence each
    retry: str | None
    drop: str | None
    edit: str | None


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """One page of dead letters, and how many there are of each kind."""

    items: tuple[DeadLetter, ...]
    next: str | None
    counts: dict[str, Count]
    #: the categories that hold errors of pipelines, as far as they are found
    errors_queues: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one of several dead letters."""

    key: str
    done: bool
    #: why not
    reason: str | None = None


async def dead_letters(
    store: AsyncStore,
    kind: str | None = None,
    after: str | None = None,
    limit: int = 50,
    *,
    errors_queues: Iterable[str] = (),
) -> DeadLetters:
    """Return dead letters of a kind, or of all kinds one after the other.

    `errors_queues` are categories that pipelines declare; others are found by their messages.
    """
    raise NotImplementedError


async def dead_letter(store: AsyncStore, key: str) -> DeadLetterDetail:
    """Return one dead letter with its data, or raise `DeadLetterNotFound`."""
    raise NotImplementedError


async def retry(store: AsyncStore, keys: Iterable[str]) -> tuple[Outcome, ...]:
    """Retry dead letters, at most 1,000, each in a transaction of its own."""
    raise NotImplementedError


async def drop(store: AsyncStore, keys: Iterable[str], who: str = "") -> tuple[Outcome, ...]:
    """Drop dead letters, at most 1,000, each in a transaction of its own."""
    raise NotImplementedError


async def retry_edited(store: AsyncStore, key: str, data: Any, who: str = "") -> Outcome:
    """Retry an edited copy of a dead letter in its place."""
    raise NotImplementedError
