"""What the console changes. Each action is safe against a second person who does the same.

`expected` is what a preview has returned: if it differs by now, the action is refused with
`StateChanged`, and nothing is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString
from uuid import UUID

from penstock.admin.readers import end_of_log
from penstock.console.data.log import MessageRow, messages
from penstock.console.data.outbox import outbox_message
from penstock.console.data.overview import HoldingBack, holding_back
from penstock.console.data.pages import COUNT_UP_TO, cursor, place, query
from penstock.console.data.partitions import found_partition
from penstock.console.data.readers import consumer, group, queue_consumer
from penstock.consumers.positions import Positions, StreamPositions, TablePositions
from penstock.database.operation import call, only_value
from penstock.database.waiters import of_group
from penstock.errors import (
    OutboxMessageNotFound,
    PositionConflict,
    StaleClaim,
    StateChanged,
    ValidationError,
    WriterNotFound,
    WrongExpectedVersion,
)
from penstock.log.overview import check_pid
from penstock.loops.failure_policy import kept_error
from penstock.message import as_uuid, check_text, new_id
from penstock.outbox import operations as outbox_operations
from penstock.outbox.join_operations import cancel
from penstock.store_async import AsyncStore

#: the stream of what was done on the console
AUDIT_STREAM = "penstock:console-actions"


@dataclass(frozen=True, slots=True)
class Retried:
    """How many messages of a filter were retried, and whether there may be more."""

    count: int
    more: bool
    #: pass it as `after` to go on
    next: str | None


async def record_action(store: AsyncStore, who: str, what: str, facts: Mapping[str, Any]) -> int:
    """Write what somebody did to the stream of actions; return the message's global position."""
    check_text("who", who)
    check_text("what", what)
    data = {"who": who, "what": what, "facts": dict(facts)}
    written: int = await store.write_message(
        AUDIT_STREAM, "ActionTaken", data, returning="global_position"
    )
    return written


async def recorded_actions(store: AsyncStore, limit: int = 50) -> tuple[MessageRow, ...]:
    """Return what was done last, newest first."""
    return (await messages(store, AUDIT_STREAM, limit=limit)).items


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
        rings=frozenset([of_group(group_id)]),
    )
    try:
        await store.run(released)
    except StaleClaim:
        raise StateChanged(what, f"claimed by {claimed_by}", "acknowledged or released") from None
    return str(claimed_by)


async def retry_outbox(store: AsyncStore, id: str | UUID) -> None:
    """Make a failed message ready again."""
    if not await store.outbox.retry_failed([str(as_uuid(id))]):
        raise await _not_in_state(store, id, "failed")


async def cancel_outbox(store: AsyncStore, id: str | UUID, who: str) -> None:
    """Fail a message that is ready, so that it is not handled. Joins count it as failed.

    One that is in progress is refused: its handler runs.
    """
    check_text("who", who)
    token, wanted = new_id(), as_uuid(id)
    claim: LiteralString = """
update penstock.outbox o set state = 'in_progress', owner = %(who)s, token = %(token)s,
  lease_until = clock_timestamp() + interval '1 minute'
where o.id = %(id)s and o.state = 'ready' returning o.id"""
    finish: LiteralString = "select penstock.finish_outbox(array[%s]::uuid[], %s, 'failed', %s)"
    async with store.transaction() as transaction:
        arguments = {"who": kept_error(who), "token": token, "id": wanted}
        claimed = await transaction.run(call("claim", claim, arguments, list))
        if claimed:
            error = kept_error(f"cancelled by {who}")
            finished = call("fail", finish, (wanted, token, error), only_value)
            [woken] = outbox_operations.waking_joins([finished])
            await transaction.run(woken)
    if not claimed:
        raise await _not_in_state(store, wanted, "ready")


async def drop_outbox(store: AsyncStore, id: str | UUID) -> None:
    """Remove a failed message."""
    sql: LiteralString = (
        "delete from penstock.outbox o where o.id = %s and o.state = 'failed' returning o.id"
    )
    if not await store.run(call("drop_outbox", sql, (as_uuid(id),), list)):
        raise await _not_in_state(store, id, "failed")


async def _not_in_state(
    store: AsyncStore, id: str | UUID, expected: str
) -> StateChanged | OutboxMessageNotFound:
    try:
        found = await outbox_message(store, id)
    except OutboxMessageNotFound as error:
        return error
    return StateChanged(f"outbox message {id}", expected, found.row.state)


async def retry_matching(
    store: AsyncStore,
    topic: str | None = None,
    error_contains: str | None = None,
    failed_since: datetime | None = None,
    after: str | None = None,
) -> Retried:
    """Retry failed messages that match, about 1,000 of them; go on with `next` while there is one.

    Each thousand that it looks at is a transaction, and it looks at 20,000 at most. A message that
    somebody else changes at the moment is left out.
    """
    for name, text in (("topic", topic), ("error_contains", error_contains)):
        if text is not None:
            check_text(name, text)
    if failed_since is not None and failed_since.tzinfo is None:
        raise ValidationError("failed_since", failed_since, "a datetime with a time zone")
    wanted = {"topic": topic, "error": error_contains, "since": failed_since}
    count, end = 0, after
    for _ in range(20):
        retried, end = await _retry_next(store, wanted, end)
        count += retried
        if end is None or count >= COUNT_UP_TO:
            break
    return Retried(count, end is not None, end)


async def _retry_next(
    store: AsyncStore, wanted: Mapping[str, Any], after: str | None
) -> tuple[int, str | None]:
    """Retry those that match of the next failed messages; return how many, and where to go on."""
    of_topic: LiteralString = "true" if wanted["topic"] is None else "o.topic = %(topic)s"
    beyond: LiteralString = (
        "true"
        if after is None
        else "(o.topic, o.finished_at) >= (%(from_topic)s, %(from_time)s)"
        " and (o.topic, o.finished_at, o.id) > (%(from_topic)s, %(from_time)s, %(from_id)s)"
    )
    sql: LiteralString = f"""
with looked_at as materialized (
  select o.id, o.topic, o.finished_at, o.last_error from penstock.outbox o
  where o.state = 'failed' and {of_topic} and {beyond}
  order by o.topic, o.finished_at, o.id limit %(most)s
), wanted as (
  select o.id from penstock.outbox o join looked_at l on l.id = o.id
  where o.state = 'failed'
    and (%(error)s::text is null or strpos(l.last_error, %(error)s) > 0)
    and (%(since)s::timestamptz is null or l.finished_at >= %(since)s)
  for update of o skip locked
)
select l.topic, l.finished_at, l.id, w.id is not null
from looked_at l left join wanted w on w.id = l.id
order by l.topic, l.finished_at, l.id"""  # noqa: S608
    start = place(after, str, datetime, UUID) or (None, None, None)
    places = dict(zip(("from_topic", "from_time", "from_id"), start, strict=True))
    arguments = {**wanted, **places, "most": COUNT_UP_TO}
    async with store.transaction() as transaction:
        rows = await transaction.run(query("matching", sql, arguments, list))
        ids = [id for _, _, id, matches in rows if matches]
        count = await transaction.outbox.retry_failed(ids) if ids else 0
    return count, cursor(*rows[-1][:3]) if len(rows) == COUNT_UP_TO else None


async def cancel_join(store: AsyncStore, join_id: str | UUID) -> None:
    """Cancel a join: no message follows. A second time is refused."""
    if not await store.run(cancel(join_id)):
        raise StateChanged(f"join {join_id}", "pending", "cancelled")
