"""Dead letters: failed outbox messages, parked messages and partitions, errors queues.

A dead letter has a key: `outbox/{id}`, `parked/{category}/{consumer_id}/{global_position}`,
`partition/{group_id}/{partition_key}` or `error/{global_position}`, its parts percent-encoded.

The log keeps the messages of an errors queue. That one was retried or dropped is recorded in a
stream of its own, `penstock:settled-{global_position}`: its first message can be written once, so
of two people who act on the same message the second gets an answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString
from urllib.parse import quote, unquote

import msgspec

from penstock.console.data import parked_messages
from penstock.console.data.actions import drop_outbox, resume_partition, retry_outbox
from penstock.console.data.errors_queues import errors_in, errors_queues_of, retry_error, settle
from penstock.console.data.log import recorded
from penstock.console.data.outbox import outbox_message, outbox_messages, whole_payload
from penstock.console.data.pages import (
    Count,
    Shown,
    as_shown,
    check_page,
    counted,
    cursor,
    place,
    query,
)
from penstock.console.data.partitions import partition, partitions
from penstock.console.data.readers import groups
from penstock.errors import (
    DeadLetterNotFound,
    GroupNotFound,
    MessageNotFound,
    OutboxMessageNotFound,
    PartitionNotFound,
    PenstockError,
    StateChanged,
    ValidationError,
    first_line,
)
from penstock.outbox.messages import encode_payload
from penstock.store_async import AsyncStore

#: outbox: a failed message; parked: a message that a consumer has parked; partition: a parked
#: partition of a group; error: a message in an errors queue of a pipeline
KINDS = ("outbox", "parked", "partition", "error")
#: that can be acted on together
MOST = 1_000


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
            *(_key("outbox", one.id), "outbox", one.topic, str(one.id), one.topic),
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
        waiting = (await parked_messages.waiting(store, category, consumer_id)).messages
        left = [one for one in waiting if name > stream or one.message.global_position > position]
        left.sort(key=lambda one: one.message.global_position)
        if not left:
            continue
        shown = left[:limit]
        letters = [
            DeadLetter(
                key=_key("parked", category, consumer_id, one.message.global_position),
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
                _key("partition", name, one.partition_key),
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
                _key("error", one.global_position),
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


async def dead_letter(store: AsyncStore, key: str) -> DeadLetterDetail:
    """Return one dead letter with its data, or raise `DeadLetterNotFound`."""
    store.context.require_penstock("the console")
    kind, *parts = parse_key(key)
    try:
        return await _DETAILS[kind](store, key, *parts)
    except (GroupNotFound, MessageNotFound, OutboxMessageNotFound, PartitionNotFound):
        raise DeadLetterNotFound(key) from None


async def _outbox_detail(store: AsyncStore, key: str, id: str) -> DeadLetterDetail:
    found = await outbox_message(store, id)
    row = found.row
    if row.state != "failed":
        raise DeadLetterNotFound(key)
    letter = DeadLetter(
        *(key, "outbox", row.topic, str(row.id), row.topic, row.last_error, row.attempts),
        *(row.finished_at, ("retry", "drop", "edit")),
    )
    counted_before = " A join has counted it as failed, and counts it no more." * bool(found.joins)
    return DeadLetterDetail(
        letter=letter,
        data=found.payload,
        metadata=as_shown({"correlation_id": row.correlation_id, "dedupe_key": found.dedupe_key}),
        global_position=None,
        retry=f"It is made ready: a dispatcher of {row.topic} handles it.{counted_before}",
        drop="It is removed from the outbox.",
        edit=f"A new message of {row.topic} with the edited payload takes its place.",
    )


async def _parked_detail(
    store: AsyncStore, key: str, category: str, consumer_id: str, position: str
) -> DeadLetterDetail:
    one = await parked_messages.find(store, category, consumer_id, _position(key, position))
    if one is None:
        raise DeadLetterNotFound(key)
    letter = DeadLetter(
        *(key, "parked", f"{category}-{consumer_id}", position, one.message.type, one.error),
        *(one.attempts, one.parked_at, ("retry", "drop", "edit")),
        "retry requested" if one.retry_requested else None,
    )
    return DeadLetterDetail(
        letter=letter,
        data=as_shown(one.message.data),
        metadata=as_shown(one.message.metadata or {}),
        global_position=one.message.global_position,
        retry=f"{consumer_id} handles it when it is idle.",
        drop=f"{consumer_id} does not handle it. It stays in the log.",
        edit=f"{consumer_id} handles the edited copy. The message in the log stays as it is.",
    )


async def _partition_detail(
    store: AsyncStore, key: str, group_id: str, partition_key: str
) -> DeadLetterDetail:
    one = await partition(store, group_id, partition_key)
    if one.state != "parked":
        raise DeadLetterNotFound(key)
    data: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    type = None
    if one.next_position is not None:
        message = await recorded(store, one.next_position)
        data, metadata, type = message.data, message.metadata or {}, message.type
    letter = DeadLetter(
        *(key, "partition", group_id, partition_key, type, one.error, one.attempts),
        *(one.parked_at, ("retry",)),
    )
    return DeadLetterDetail(
        letter=letter,
        data=as_shown(data),
        metadata=as_shown(metadata),
        global_position=one.next_position,
        retry=f"A worker of {group_id} handles it from the message that failed on.",
        drop=None,
        edit=None,
    )


async def _error_detail(store: AsyncStore, key: str, position: str) -> DeadLetterDetail:
    one = await recorded(store, _position(key, position))
    facts = one.metadata or {}
    if "failed_global_position" not in facts or await errors_queue_settled(store, one):
        raise DeadLetterNotFound(key)
    stream_name = facts.get("failed_stream_name")
    letter = DeadLetter(
        *(key, "error", one.category, position, one.type, str(facts.get("error"))),
        *(None, one.time, ("retry", "drop", "edit")),
    )
    again = f"is written to {stream_name} as a new message: everything that reads it gets it"
    return DeadLetterDetail(
        letter=letter,
        data=as_shown(one.data),
        metadata=as_shown(facts),
        global_position=one.global_position,
        retry=f"A copy {again}.",
        drop="It is not listed here any more. It stays in the log.",
        edit=f"The edited copy {again}.",
    )


async def errors_queue_settled(store: AsyncStore, message: Any) -> bool:
    """Whether a message of an errors queue was retried or dropped."""
    return await store.stream_version(f"penstock:settled-{message.global_position}") is not None


_DETAILS: dict[str, Callable[..., Awaitable[DeadLetterDetail]]] = {
    "outbox": _outbox_detail,
    "parked": _parked_detail,
    "partition": _partition_detail,
    "error": _error_detail,
}


async def retry(store: AsyncStore, keys: Iterable[str], who: str = "") -> tuple[Outcome, ...]:
    """Retry dead letters, at most 1,000, each in a transaction of its own."""

    async def one(kind: str, key: str, parts: list[str]) -> None:
        if kind == "outbox":
            await retry_outbox(store, parts[0])
        elif kind == "parked":
            category, consumer_id, position = parts
            at = _position(key, position)
            await parked_messages.mark(store, category, consumer_id, at, "RetryRequested")
        elif kind == "partition":
            await resume_partition(store, *parts)
        else:
            await retry_error(store, _position(key, parts[0]), who)

    return await _each(keys, one)


async def drop(store: AsyncStore, keys: Iterable[str], who: str = "") -> tuple[Outcome, ...]:
    """Drop dead letters, at most 1,000, each in a transaction of its own.

    A parked partition cannot be dropped: its next messages wait behind the one that failed.
    """

    async def one(kind: str, key: str, parts: list[str]) -> None:
        if kind == "outbox":
            await drop_outbox(store, parts[0])
        elif kind == "parked":
            category, consumer_id, position = parts
            at = _position(key, position)
            await parked_messages.mark(store, category, consumer_id, at, "Dropped")
        elif kind == "partition":
            raise ValidationError("key", key, "one that can be dropped: resume the partition")
        else:
            await settle(store, _position(key, parts[0]), "Dropped", who)

    return await _each(keys, one)


async def retry_edited(store: AsyncStore, key: str, data: Any, who: str = "") -> Outcome:
    """Retry an edited copy of a dead letter in its place. Raises if that is not possible.

    `data` is the whole of the message's data or of the payload: text or bytes of such a payload.
    """
    kind, *parts = parse_key(key)
    if kind in ("parked", "error") and not isinstance(data, dict):
        raise ValidationError("data", data, "a JSON object")
    if kind == "outbox":
        await _retry_edited_payload(store, parts[0], data)
    elif kind == "parked":
        category, consumer_id, position = parts
        at = _position(key, position)
        await parked_messages.retry_edited(store, category, consumer_id, at, data, who)
    elif kind == "partition":
        raise ValidationError("key", key, "one that can be edited: a partition handles the log")
    else:
        await retry_error(store, _position(key, parts[0]), who, data)
    return Outcome(key, True)


async def _retry_edited_payload(store: AsyncStore, id: str, payload: Any) -> None:
    found = (await outbox_message(store, id)).row
    encode_payload(payload)  # refuses what cannot be one
    dedupe: LiteralString = (
        "delete from penstock.outbox o where o.id = %s and o.state = 'failed'"
        " returning o.correlation_id, o.dedupe_key"
    )
    async with store.transaction() as transaction:
        rows = await transaction.run(query("drop_outbox", dedupe, (found.id,), list))
        if not rows:
            raise StateChanged(f"outbox message {id}", "failed", "changed")
        correlation_id, dedupe_key = rows[0]
        await transaction.outbox.enqueue(
            found.topic, payload, correlation_id=correlation_id, dedupe_key=dedupe_key
        )


async def whole(store: AsyncStore, key: str) -> bytes:
    """Return the whole data of a dead letter, however large, for a download."""
    kind, *parts = parse_key(key)
    if kind == "outbox":
        return await whole_payload(store, parts[0])
    if kind == "parked":
        position = _position(key, parts[2])
        one = await parked_messages.find(store, parts[0], parts[1], position)
        if one is None:
            raise DeadLetterNotFound(key)
        return msgspec.json.encode(one.message.data)
    found = await dead_letter(store, key)
    if found.global_position is None:
        return b"{}"
    return msgspec.json.encode((await recorded(store, found.global_position)).data)


async def _each(
    keys: Iterable[str], act: Callable[[str, str, list[str]], Awaitable[None]]
) -> tuple[Outcome, ...]:
    wanted = list(dict.fromkeys(keys))
    if len(wanted) > MOST:
        raise ValidationError("keys", len(wanted), f"at most {MOST:,} at once")
    parsed = [(key, parse_key(key)) for key in wanted]  # before the first is acted on
    outcomes = []
    for key, (kind, *parts) in parsed:
        try:
            await act(kind, key, parts)
        except PenstockError as error:
            if error.retryable:  # the database is away: the rest would fail alike
                raise
            outcomes.append(Outcome(key, False, first_line(error)))
        else:
            outcomes.append(Outcome(key, True))
    return tuple(outcomes)


def _key(kind: str, *parts: object) -> str:
    return "/".join((kind, *(quote(str(one), safe="") for one in parts)))


def parse_key(key: str) -> list[str]:
    """Return the kind and the parts of a key, or raise `ValidationError`."""
    kind, *parts = [unquote(one) for one in str(key).split("/")]
    lengths = {"outbox": 1, "parked": 3, "partition": 2, "error": 1}
    if len(parts) != lengths.get(kind) or not all(parts):
        raise ValidationError("key", key, "the key of a dead letter, such as `outbox/{id}`")
    return [kind, *parts]


def _position(key: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise ValidationError("key", key, "the key of a dead letter, with a global position")
    return int(text)
