"""What is done to readers and open writers.

`expected` is what a preview has returned: if it differs by now, the action is refused with
`StateChanged`, and nothing is done.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import LiteralString

from penstock.admin.readers import end_of_log
from penstock.console.data import parked_messages
from penstock.console.data.consumers import consumer, queue_consumer
from penstock.console.data.groups import group
from penstock.console.data.overview import HoldingBack, holding_back
from penstock.console.data.partitions import found_partition
from penstock.consumers.parked import parked_stream
from penstock.consumers.positions import Positions, StreamPositions, TablePositions
from penstock.database.operation import call, only_value
from penstock.database.waiters import of_group
from penstock.errors import (
    ParkedMessageNotFound,
    PositionConflict,
    StaleClaim,
    StateChanged,
    ValidationError,
    WriterNotFound,
    WrongExpectedVersion,
)
from penstock.log.overview import check_pid
from penstock.store_async import AsyncStore


async def end_writer(store: AsyncStore, pid: int, bound: int | None = None) -> HoldingBack:
    """End an open writer, and return it. With `bound`, only if it still holds that back.

    A server process outlives its transactions: the bound tells one of them from the next.
    """
    check_pid(pid)
    status = await store.status()
    found = next((one for one in status.open_writers if one.pid == pid), None)
    if found is None:
        raise WriterNotFound(pid)
    if bound is not None and found.bound != bound:
        raise StateChanged(f"the writer {pid}", f"at {bound}", f"at {found.bound}, a later one")
    return holding_back(await store.admin.release_writer(pid))


async def seek(
    store: AsyncStore, category: str, consumer_id: str, position: int, expected: int | None
) -> None:
    """Move a consumer from where it is expected to just after a global position."""
    one = await consumer(store, category, consumer_id)
    what = f"{consumer_id} of {category}"
    if one.position != expected:
        raise StateChanged(what, f"at {expected}", f"at {one.position}")
    end = await store.run(end_of_log())
    if position > end:
        raise ValidationError("position", position, f"at most {end}, the end of the log")
    kinds: dict[str, Positions] = {
        "stream": StreamPositions(category, consumer_id),
        "table": TablePositions(category, consumer_id),
    }
    kept = kinds[one.kept_in]
    stored = await store.run(kept.load(store.context))
    if stored.position != (expected or 0):
        raise StateChanged(what, f"at {expected}", f"at {stored.position}")
    try:
        await store.run(kept.save(store.context, stored, position))
    except (PositionConflict, WrongExpectedVersion):
        raise StateChanged(what, f"at {expected}", "elsewhere") from None


async def replay(
    store: AsyncStore, category: str, consumer_id: str, position: int, expected: int | None
) -> int:
    """Let a consumer handle messages again from `position` on; return where it resumes after."""
    if position - 1 > (expected or 0):
        raise ValidationError("position", position, f"at most {(expected or 0) + 1}, to skip none")
    await seek(store, category, consumer_id, position - 1, expected)
    return position - 1


async def retry_parked(store: AsyncStore, category: str, consumer_id: str) -> tuple[int, bool]:
    """Request a retry of a consumer's parked messages.

    Return for how many that is new, and whether there may be more than were looked at.
    """
    found = await parked_messages.waiting(store, parked_stream(category, consumer_id))
    positions = [one.message.global_position for one in found.messages if not one.retry_requested]
    requested = 0
    for position in positions:
        with suppress(ParkedMessageNotFound):  # handled or dropped meanwhile
            requested += await store.admin.retry_parked(category, consumer_id, position)
    return requested, not found.complete


async def seek_queue(
    store: AsyncStore, queue: str, consumer_id: str, next_offset: int, expected: int
) -> int:
    """Move a queue's consumer from where it is expected to an offset; return that before."""
    one = await queue_consumer(store, queue, consumer_id)
    if one.next_offset != expected:
        raise _moved(queue, consumer_id, expected, one.next_offset)
    async with store.transaction() as transaction:
        sql: LiteralString = "select s.next_offset from penstock.latest_session(%s, %s, true) s"
        locked = call("lock_session", sql, (one.stream_name, consumer_id), only_value)
        if (now := await transaction.run(locked)) != expected:
            raise _moved(queue, consumer_id, expected, now)
        moved: LiteralString = "select penstock.move_session(%s, %s, %s)"
        arguments = (one.stream_name, consumer_id, next_offset)
        return int(await transaction.run(call("move_session", moved, arguments, only_value)))


def _moved(queue: str, consumer_id: str, expected: int, actual: int | None) -> StateChanged:
    return StateChanged(f"{consumer_id} of {queue}", f"at {expected}", f"at {actual}")


async def reset_group(store: AsyncStore, group_id: str, expected: int) -> None:
    """Reset a group that has read up to `expected`, or further: every partition starts again.

    It is refused if it has read less by now: somebody has reset it already.
    """
    async with store.transaction() as transaction:
        await group(store, group_id)
        lock: LiteralString = (
            "select pg_advisory_xact_lock(1885693286, g.id) from penstock.consumer_groups g"
            " where g.group_id = %s"
        )
        await transaction.run(call("lock_group", lock, (group_id,), list))
        progress: LiteralString = (
            "select a.routed_to from penstock.find_group(%s) g"
            " cross join lateral penstock.latest_group_progress(g.id) a"
        )
        now = await transaction.run(call("group_progress", progress, (group_id,), only_value))
        if now < expected:
            raise StateChanged(f"group {group_id}", f"at {expected}", f"at {now}")
        await transaction.groups.reset(group_id)


async def stop_group(store: AsyncStore, group_id: str) -> None:
    """Give out no more claims of a group."""
    await store.groups.stop(group_id)


async def start_group(store: AsyncStore, group_id: str) -> None:
    """Give out claims of a group again."""
    await store.groups.start(group_id)


async def resume_partition(store: AsyncStore, group_id: str, partition_key: str) -> None:
    """Resume a parked partition."""
    await found_partition(store, group_id, partition_key)
    if not await store.groups.resume(group_id, partition_key):
        raise StateChanged(f"partition {partition_key}", "parked", "not parked")


async def resume_partitions(store: AsyncStore, group_id: str) -> int:
    """Resume all parked partitions of a group, and return how many."""
    return await store.groups.resume(group_id)


async def release_partition(
    store: AsyncStore, group_id: str, partition_key: str, claimed_at: datetime | None = None
) -> str:
    """Take a claimed partition from its worker, and return who that was.

    Its attempt does not count. What the worker acknowledges later is refused. With `claimed_at`,
    only if it is still that claim.
    """
    row = await found_partition(store, group_id, partition_key)
    claimed_by, since, (offset_id, token) = row[3], row[4], row[11:13]
    what = f"partition {partition_key}"
    if token is None:
        raise StateChanged(what, "claimed", "not claimed")
    if claimed_at is not None and since != claimed_at:
        raise StateChanged(what, f"claimed at {claimed_at}", f"claimed again at {since}")
    sql: LiteralString = "select penstock.release(%s, %s, %s)"
    released = call(
        "release",
        *(sql, (group_id, offset_id, token), lambda _: None),
        notifies=frozenset([of_group(group_id)]),
    )
    try:
        await store.run(released)
    except StaleClaim:
        raise StateChanged(what, f"claimed by {claimed_by}", "acknowledged or released") from None
    return str(claimed_by)
