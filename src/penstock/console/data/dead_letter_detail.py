"""One dead letter: its data, and what retrying, dropping or editing it would do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.console.data import parked_messages
from penstock.console.data.dead_letters import DeadLetter, parse_key, position_in
from penstock.console.data.message_detail import recorded
from penstock.console.data.outbox import outbox_message, whole_payload
from penstock.console.data.pages import Shown, as_shown
from penstock.console.data.partitions import partition
from penstock.errors import (
    DeadLetterNotFound,
    GroupNotFound,
    MessageNotFound,
    OutboxMessageNotFound,
    PartitionNotFound,
)
from penstock.store_async import AsyncStore


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
    one = await parked_messages.find(store, category, consumer_id, position_in(key, position))
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
    one = await recorded(store, position_in(key, position))
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


async def whole(store: AsyncStore, key: str) -> bytes:
    """Return the whole data of a dead letter, however large, for a download."""
    kind, *parts = parse_key(key)
    if kind == "outbox":
        return await whole_payload(store, parts[0])
    if kind == "parked":
        position = position_in(key, parts[2])
        one = await parked_messages.find(store, parts[0], parts[1], position)
        if one is None:
            raise DeadLetterNotFound(key)
        return msgspec.json.encode(one.message.data)
    found = await dead_letter(store, key)
    if found.global_position is None:
        return b"{}"
    return msgspec.json.encode((await recorded(store, found.global_position)).data)
