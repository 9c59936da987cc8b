"""The parked messages of consumers, by the last thousand entries of their streams.

An entry is written with the stream's expected version, so that of two people who act on the same
message the second gets an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

from penstock.console.data.pages import query
from penstock.consumers.parked import ParkedMessage, fold, parked_stream
from penstock.database.operation import Row
from penstock.errors import ParkedMessageNotFound, StateChanged, WrongExpectedVersion
from penstock.loops.failure_policy import kept_error
from penstock.message import Message
from penstock.store_async import AsyncStore

LOOK_AT = 1_000
ATTEMPTS = 10
_ENTRIES: LiteralString = """
select m.id::varchar, m.stream_name::varchar, m.type::varchar, m.position, m.global_position,
  m.data::varchar, m.metadata::varchar, m.time
from (
  select m.* from message_store.messages m where m.stream_name = %s
  order by m.position desc limit %s
) m
order by m.position"""


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a consumer has parked, and the version of its parked stream then."""

    messages: tuple[ParkedMessage, ...]
    version: int


async def parked_streams(store: AsyncStore) -> list[tuple[str, str, str]]:
    """Return the parked streams by name, each with its category and consumer."""
    sql: LiteralString = (
        "select category, consumer_id, stream_name from penstock.streams_of_consumers('parked')"
    )
    found: list[Row] = await store.run(query("parked_streams", sql, (), list))
    return sorted(((one[0], one[1], one[2]) for one in found), key=lambda one: one[2])


async def waiting(store: AsyncStore, category: str, consumer_id: str) -> Waiting:
    """Return the messages that are still parked, by the last thousand entries."""
    arguments = (parked_stream(category, consumer_id), LOOK_AT)
    entries = await store.run(query("parked", _ENTRIES, arguments, store.context.decode))
    version = entries[-1].position if entries else -1
    return Waiting(tuple(fold(entries).values()), version)


async def find(
    store: AsyncStore, category: str, consumer_id: str, global_position: int
) -> ParkedMessage | None:
    """Return a message that is still parked, by its global position."""
    found = await waiting(store, category, consumer_id)
    return _at(found.messages, global_position)


def _at(messages: Sequence[ParkedMessage], global_position: int) -> ParkedMessage | None:
    return next((one for one in messages if one.message.global_position == global_position), None)


async def mark(
    store: AsyncStore, category: str, consumer_id: str, global_position: int, what: str
) -> None:
    """Request a retry of a parked message (RetryRequested), or drop it (Dropped)."""

    def entries(one: ParkedMessage) -> list[Message]:
        if what == "RetryRequested" and one.retry_requested:
            parked = f"parked message {global_position}"
            raise StateChanged(parked, "waiting", "to be retried, as somebody requested")
        return [Message(what, {"global_position": global_position})]

    await _write(store, category, consumer_id, global_position, entries)


async def retry_edited(
    store: AsyncStore,
    category: str,
    consumer_id: str,
    global_position: int,
    data: dict[str, Any],
    who: str,
) -> None:
    """Park an edited copy in the place of a parked message, and request that it is retried."""

    def entries(one: ParkedMessage) -> list[Message]:
        edited = {**one.message.to_dict(), "data": data}
        edited["metadata"] = {**(one.message.metadata or {}), "edited_by": who or "?"}
        parked = {"message": edited, "error": kept_error(one.error), "attempts": one.attempts}
        return [
            Message("Parked", parked),
            Message("RetryRequested", {"global_position": global_position}),
        ]

    await _write(store, category, consumer_id, global_position, entries)


async def _write(
    store: AsyncStore, category: str, consumer_id: str, global_position: int, entries: Any
) -> None:
    stream_name = parked_stream(category, consumer_id)
    for _ in range(ATTEMPTS):
        found = await waiting(store, category, consumer_id)
        one = _at(found.messages, global_position)
        if one is None:
            raise ParkedMessageNotFound(category, consumer_id, global_position)
        try:
            await store.write_messages(stream_name, entries(one), expected_version=found.version)
        except WrongExpectedVersion:
            continue  # the consumer, or somebody else, has written an entry: look again
        return
    raise StateChanged(f"parked message {global_position}", "at rest", "changing all the time")
