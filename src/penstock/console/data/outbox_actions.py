"""What is done to messages of the outbox and to joins.

Of two people who do the same, the second gets `StateChanged`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString
from uuid import UUID

from penstock.console.data.outbox import outbox_message
from penstock.console.data.pages import COUNT_UP_TO, cursor, place, query
from penstock.database.operation import call, only_value
from penstock.errors import OutboxMessageNotFound, StateChanged, ValidationError
from penstock.loops.failure_policy import kept_error
from penstock.message import as_uuid, check_text, new_id
from penstock.outbox import operations as outbox_operations
from penstock.outbox.join_operations import cancel
from penstock.store_async import AsyncStore


@dataclass(frozen=True, slots=True)
class Retried:
    """How many messages of a filter were retried, and whether there may be more."""

    count: int
    more: bool
    #: pass it as `after` to go on
    next: str | None


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
