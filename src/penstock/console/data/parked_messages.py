"""The parked messages of consumers, by the last entries of their streams."""

from __future__ import annotations

from typing import Any, LiteralString

from penstock.console.data.pages import LOOK_AT, query
from penstock.consumers.parked import ParkedMessage, parked_stream
from penstock.consumers.parked_stream_async import (
    WaitingMessages,
    find_parked,
    read_parked,
    write_entries,
)
from penstock.database.operation import Row
from penstock.errors import StateChanged
from penstock.loops.failure_policy import kept_error
from penstock.message import Message
from penstock.store_async import AsyncStore


async def parked_streams(store: AsyncStore) -> list[tuple[str, str, str]]:
    """Return the parked streams by name, each with its category and consumer."""
    sql: LiteralString = (
        "select category, consumer_id, stream_name from penstock.streams_of_consumers('parked')"
    )
    found: list[Row] = await store.run(query("parked_streams", sql, (), list))
    return sorted(((one[0], one[1], one[2]) for one in found), key=lambda one: one[2])


async def waiting(store: AsyncStore, stream_name: str) -> WaitingMessages:
    """Return the messages that are still parked, by the last 5,000 entries."""
    return await read_parked(store, stream_name, look_at=LOOK_AT)


async def find(
    store: AsyncStore, category: str, consumer_id: str, global_position: int
) -> ParkedMessage | None:
    """Return a message that is still parked, by its global position."""
    found, _ = await find_parked(store, parked_stream(category, consumer_id), global_position)
    return found


async def retry(store: AsyncStore, category: str, consumer_id: str, global_position: int) -> None:
    """Request a retry of a parked message, unless somebody did."""
    if not await store.admin.retry_parked(category, consumer_id, global_position):
        parked = f"parked message {global_position}"
        raise StateChanged(parked, "waiting", "about to be retried")


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

    await write_entries(store, category, consumer_id, global_position, entries)
