"""Dead letters: failed outbox messages, parked messages and partitions, errors queues.

A dead letter has a key: `outbox/{id}`, `parked/{category}/{consumer_id}/{global_position}`,
`partition/{group_id}/{partition_key}` or `error/{global_position}`, its parts percent-encoded.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString
from urllib.parse import quote, unquote

from penstock.console.data import parked_messages
from penstock.console.data.errors_queues import errors_in, errors_queues_of
from penstock.console.data.groups import groups
from penstock.console.data.outbox import outbox_messages
from penstock.console.data.pages import Count, check_page, counted, cursor, place, query
from penstock.console.data.partitions import partitions
from penstock.errors import ValidationError
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
class DeadLetters:
    """One page of dead letters, and how many there are of each kind."""

    items: tuple[DeadLetter, ...]
    next: str | None
    counts: dict[str, Count]
    #: the categories that hold errors of pipelines, as far as they are found
    errors_queues: tuple[str, ...]


async def dead_letters(
    store: AsyncStore,
    kind: str | None = None,
    after: str | None = None,
    limit: int = 50,
    *,
    errors_queues: Iterable[str] = (),
) -> DeadLetters:
    """Return dead letters of a kind, or of all kinds one after the other.

    `errors_queues` are categories that pipelines declare; others are found by their messages. A
    page ends with its kind, and may be short.
    """
    store.context.require_penstock("the console")
    if kind is not None and kind not in KINDS:
        raise ValidationError("kind", kind, f"one of {', '.join(KINDS)}")
    check_page(limit)
    queues = await errors_queues_of(store, errors_queues)
    current, inner = place(after, str, str | None) or (kind or KINDS[0], None)
    if current not in KINDS or (kind is not None and kind != current):
        raise ValidationError("after", after, "the `next` of a page of the same list")
    while True:
        items, following = await _LISTS[current](store, inner, limit, queues)
        later = KINDS[KINDS.index(current) + 1 :]
        goes_on = kind is None and bool(later)
        end = cursor(later[0], None) if goes_on and following is None else None
        if following is not None:
            end = cursor(current, following)
        if items or following is not None or kind is not None or not later:
            break
        current, inner = later[0], None
    return DeadLetters(tuple(items), end, await _counts(store), queues)


List = tuple[list[DeadLetter], str | None]


async def _outbox(
    store: AsyncStore, after: str | None, limit: int, queues: tuple[str, ...]
) -> List:
    page = await outbox_messages(store, None, "failed", after, limit)
    letters = [
        DeadLetter(
            *(key_of("outbox", one.id), "outbox", one.topic, str(one.id), one.topic),
            *(one.last_error, one.attempts, one.finished_at, ("retry", "drop", "edit")),
        )
        for one in page.items
    ]
    return letters, page.next


async def _parked(
    store: AsyncStore, after: str | None, limit: int, queues: tuple[str, ...]
) -> List:
    """Return the parked messages of one consumer after the other."""
    streams = await parked_messages.parked_streams(store)
    stream, position = place(after, str, int) or ("", -1)
    for number, (category, consumer_id, name) in enumerate(streams):
        if name < stream:
            continue
        waiting = (await parked_messages.waiting(store, name)).messages
        left = [one for one in waiting if name > stream or one.message.global_position > position]
        left.sort(key=lambda one: one.message.global_position)
        if not left:
            continue
        shown = left[:limit]
        letters = [
            DeadLetter(
                key=key_of("parked", category, consumer_id, one.message.global_position),
                kind="parked",
                where=f"{category}-{consumer_id}",
                what=str(one.message.global_position),
                type=one.message.type,
                error=one.error,
                attempts=one.attempts,
                failed_at=one.parked_at,
                actions=("retry", "drop", "edit"),
                note="retry requested" if one.retry_requested else None,
            )
            for one in shown
        ]
        if len(left) > limit:
            return letters, cursor(name, shown[-1].message.global_position)
        following = streams[number + 1 :]
        return letters, cursor(following[0][2], -1) if following else None
    return [], None


async def _partitions(
    store: AsyncStore, after: str | None, limit: int, queues: tuple[str, ...]
) -> List:
    """Return the parked partitions of one group after the other."""
    group_id, inner = place(after, str, str | None) or (None, None)
    listed = [one for one in (await groups(store, limit=200)).items if one.parked.value]
    names = [one.group_id for one in listed]
    if group_id is not None:
        names = [one for one in names if one >= group_id]
    for number, name in enumerate(names):
        page = await partitions(store, name, "parked", inner if name == group_id else None, limit)
        if not page.items:
            continue
        letters = [
            DeadLetter(
                key_of("partition", name, one.partition_key),
                *("partition", name, one.partition_key, None, one.error, one.attempts),
                *(one.parked_at, ("retry",)),
            )
            for one in page.items
        ]
        if page.next is not None:
            return letters, cursor(name, page.next)
        following = names[number + 1 :]
        return letters, cursor(following[0], None) if following else None
    return [], None


async def _errors(
    store: AsyncStore, after: str | None, limit: int, queues: tuple[str, ...]
) -> List:
    """Return the messages of one errors queue after the other, newest first."""
    start, inner = place(after, str, str | None) or (None, None)
    left = [one for one in queues if start is None or one >= start]
    for number, queue in enumerate(left):
        found, following = await errors_in(store, queue, inner if queue == start else None, limit)
        letters = [
            DeadLetter(
                key_of("error", one.global_position),
                *("error", queue, str(one.global_position), one.type, one.error, None, one.time),
                ("retry", "drop", "edit"),
            )
            for one in found
        ]
        if following is not None:
            return letters, cursor(queue, following)
        if letters:
            rest = left[number + 1 :]
            return letters, cursor(rest[0], None) if rest else None
    return [], None


_LISTS: dict[str, Callable[..., Awaitable[List]]] = {
    "outbox": _outbox,
    "parked": _parked,
    "partition": _partitions,
    "error": _errors,
}


_COUNTS: LiteralString = """
select
  (select count(*) from (select from penstock.outbox o
     where o.state = 'failed' order by o.topic, o.finished_at limit 1000) c),
  (select coalesce(sum(p.value), 0)::bigint from penstock.parked_figures() p),
  (select count(*) from (
     select from penstock.consumer_groups g
     join penstock.partition_states s on s.group_pk = g.id and s.parked_at is not null
     limit 1000) c)"""


async def _counts(store: AsyncStore) -> dict[str, Count]:
    """Count the kinds that can be counted; the messages of an errors queue are not."""
    counts = await store.run(query("dead_letters", _COUNTS, (), lambda rows: rows[0]))
    return dict(zip(KINDS[:3], (counted(one) for one in counts), strict=True))


def key_of(kind: str, *parts: object) -> str:
    """Return the key of a dead letter."""
    return "/".join((kind, *(quote(str(one), safe="") for one in parts)))


def parse_key(key: str) -> list[str]:
    """Return the kind and the parts of a key, or raise `ValidationError`."""
    kind, *parts = [unquote(one) for one in str(key).split("/")]
    lengths = {"outbox": 1, "parked": 3, "partition": 2, "error": 1}
    if len(parts) != lengths.get(kind) or not all(parts):
        raise ValidationError("key", key, "the key of a dead letter, such as `outbox/{id}`")
    return [kind, *parts]


def position_in(key: str, text: str) -> int:
    """Return the global position that is a part of a key, or raise `ValidationError`."""
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise ValidationError("key", key, "the key of a dead letter, with a global position")
    return int(text)
