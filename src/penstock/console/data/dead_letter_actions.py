"""Dead letters are retried, dropped, or retried as edited copies.

The log keeps the messages of an errors queue. That one was retried or dropped is recorded in a
stream of its own, `penstock:settled-{global_position}`: its first message can be written once, so
of two people who act on the same message the second gets an answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, LiteralString

from penstock.console.data import parked_messages
from penstock.console.data.dead_letters import parse_key, position_in
from penstock.console.data.errors_queues import retry_error, settle
from penstock.console.data.outbox import outbox_message
from penstock.console.data.outbox_actions import drop_outbox, retry_outbox
from penstock.console.data.pages import query
from penstock.console.data.reader_actions import resume_partition
from penstock.errors import PenstockError, StateChanged, ValidationError, first_line
from penstock.outbox.messages import encode_payload
from penstock.store_async import AsyncStore

#: that can be acted on together
MOST = 1_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one of several dead letters."""

    key: str
    done: bool
    #: why not
    reason: str | None = None


async def retry(store: AsyncStore, keys: Iterable[str], who: str = "") -> tuple[Outcome, ...]:
    """Retry dead letters, at most 1,000, each in a transaction of its own."""

    async def one(kind: str, key: str, parts: list[str]) -> None:
        if kind == "outbox":
            await retry_outbox(store, parts[0])
        elif kind == "parked":
            category, consumer_id, position = parts
            at = position_in(key, position)
            await parked_messages.retry(store, category, consumer_id, at)
        elif kind == "partition":
            await resume_partition(store, *parts)
        else:
            await retry_error(store, position_in(key, parts[0]), who)

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
            await store.admin.drop_parked(category, consumer_id, position_in(key, position))
        elif kind == "partition":
            raise ValidationError("key", key, "one that can be dropped: resume the partition")
        else:
            await settle(store, position_in(key, parts[0]), "Dropped", who)

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
        at = position_in(key, position)
        await parked_messages.retry_edited(store, category, consumer_id, at, data, who)
    elif kind == "partition":
        raise ValidationError("key", key, "one that can be edited: a partition handles the log")
    else:
        await retry_error(store, position_in(key, parts[0]), who, data)
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
