"""What moving or resetting a reader would do, to be confirmed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import LiteralString

from penstock.admin.readers import end_of_log
from penstock.console.data.consumers import consumer, queue_consumer
from penstock.console.data.groups import group
from penstock.console.data.pages import Count, counted, query
from penstock.database.operation import only_value
from penstock.log.context import check_position
from penstock.queues.operations import check_offset
from penstock.store_async import AsyncStore


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


async def preview_seek(
    store: AsyncStore, category: str, consumer_id: str, position: int
) -> Preview:
    """Say what moving a consumer to just after a global position would do."""
    check_position("position", position)
    one = await consumer(store, category, consumer_id)
    end = await store.run(end_of_log())
    now = one.position or 0
    whose = f"{consumer_id} of {category}"
    refused = (
        None if position <= end else f"position {position} is beyond {end}, the end of the log"
    )
    details: tuple[str, ...]
    if position == now:
        summary, details = f"{whose} is at {position} already: nothing changes", ()
    elif position < now:
        between = await _count(store, category, position, min(now, end))
        summary = f"{whose} goes back from {now} to {position}"
        details = (f"{between} messages are handled again",)
    else:
        between = await _count(store, category, now, min(position, end))
        summary = f"{whose} skips from {now} to {position}"
        details = (f"{between} messages are not handled",)
    running = "if it runs, it stops at its next save; started again, it goes on there"
    return Preview(summary, (*details, running), one.position, refused)


async def preview_replay(
    store: AsyncStore, category: str, consumer_id: str, position: int = 1
) -> Preview:
    """Say what handling messages again from a global position on would do."""
    check_position("position", position, 1)
    seen = await preview_seek(store, category, consumer_id, position - 1)
    if position - 1 > int(seen.expected or 0):
        refused = f"{consumer_id} is at {seen.expected}: to begin at {position} would skip messages"
        return Preview(seen.summary, seen.details, seen.expected, refused)
    return seen


async def preview_seek_queue(
    store: AsyncStore, queue: str, consumer_id: str, next_offset: int
) -> Preview:
    """Say what moving a queue's consumer would do."""
    check_offset("next_offset", next_offset)
    one = await queue_consumer(store, queue, consumer_id)
    between = abs(next_offset - one.next_offset)
    refused = None
    if next_offset > one.tail:
        refused = f"offset {next_offset} is beyond {one.tail}, the tail of the queue"
    if next_offset < one.next_offset:
        summary = f"{consumer_id} of {queue} goes back from {one.next_offset} to {next_offset}"
        details = (f"{between:,} records are read again",)
    else:
        summary = f"{consumer_id} of {queue} skips from {one.next_offset} to {next_offset}"
        details = (f"{between:,} records are not read",)
    fenced = "an open session is fenced: its next call fails"
    return Preview(summary, (*details, fenced), one.next_offset, refused)


async def preview_reset(store: AsyncStore, group_id: str) -> Preview:
    """Say what resetting a group would do."""
    one = await group(store, group_id)
    details = (
        f"{one.partitions} partitions begin again at the start of the log",
        f"{one.claimed} claims become stale: what their workers do now is not acknowledged",
        f"{one.parked} parked partitions are no longer parked",
    )
    summary = f"{group_id}, which has read up to {one.routed_to}, handles all messages again"
    return Preview(summary, details, one.routed_to)


async def _count(store: AsyncStore, category: str, after: int, until: int) -> Count:
    """Count the messages of a category between two positions, up to a limit."""
    where: LiteralString = (
        "m.global_position > %(after)s and m.global_position <= %(until)s"
        " and not penstock.is_bookkeeping(m.stream_name) order by m.global_position"
        if category == "$all"
        else "(message_store.category(m.stream_name), m.global_position)"
        " > (%(category)s, %(after)s)"
        " and (message_store.category(m.stream_name), m.global_position)"
        " <= (%(category)s, %(until)s)"
        " order by message_store.category(m.stream_name), m.global_position"
    )
    sql: LiteralString = (
        "select count(*) from (select from message_store.messages m"  # noqa: S608
        f" where {where} limit 1000) c"
    )
    arguments = {"category": category, "after": after, "until": until}
    return counted(await store.run(query("count", sql, arguments, only_value)))
