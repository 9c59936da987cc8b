"""The errors queues of pipelines: categories with copies of messages that made a step fail.

A copy has in its metadata the error, and where the message is (`failed_stream_name`,
`failed_global_position`). The console records in `penstock:settled-{global_position}` that a copy
was retried or dropped.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

from penstock.console.data.log import utc
from penstock.console.data.message_detail import recorded
from penstock.console.data.pages import cursor, place, query
from penstock.database.operation import Row
from penstock.errors import (
    DeadLetterNotFound,
    MessageNotFound,
    StateChanged,
    ValidationError,
    WrongExpectedVersion,
)
from penstock.log.write import check_category
from penstock.message import Message
from penstock.store_async import AsyncStore

#: steps of each processor that are looked at for an errors queue
LOOK_AT = 20
#: messages of an errors queue that a page is found among: those that are settled are left out
MOST_SETTLED = 1_000
_CATEGORIES: LiteralString = """
select distinct message_store.category(m.stream_name)
from penstock.processors p
cross join lateral (
  select r.data from (
    select m.data, m.type, m.position from message_store.messages m
    where m.stream_name = p.pipeline || ':try-' || p.processor
    order by m.position desc limit %(look_at)s
  ) r
  where r.type = 'Attempt'
) a
cross join lateral (values (a.data ->> 'first_position'), (a.data ->> 'last_position'))
  as at(position)
join message_store.messages m on m.global_position = at.position::bigint
where m.metadata ? 'failed_global_position'
order by 1"""
#: the last message of a category that is named like one
_BY_NAME: LiteralString = """
select c.category from penstock.categories() c
join message_store.messages m on m.global_position = c.head
where m.metadata ? 'failed_global_position' order by 1 limit 200"""
_ERRORS: LiteralString = """
select m.global_position, m.type, m.time, left(m.metadata ->> 'error', 2000),
  exists (select from message_store.messages s
    where s.stream_name = 'penstock:settled-' || m.global_position),
  coalesce(m.metadata ? 'failed_global_position', false)
from (
  select m.* from message_store.messages m
  where (message_store.category(m.stream_name), m.global_position) >= (%(queue)s, 0)
    and (message_store.category(m.stream_name), m.global_position) < (%(queue)s, %(below)s)
  order by message_store.category(m.stream_name) desc, m.global_position desc limit %(look_at)s
) m
order by m.global_position desc"""


@dataclass(frozen=True, slots=True)
class FailedCopy:
    """A message of an errors queue."""

    global_position: int
    type: str
    time: datetime
    error: str | None


async def errors_queues_of(store: AsyncStore, declared: Iterable[str]) -> tuple[str, ...]:
    """Return the errors queues: those declared, and those that are found.

    A category is one if its last message is such a copy, or if one of the newest steps of a
    processor has written such a copy to it.
    """
    given = list(declared)
    for one in given:
        check_category(one)
    of_steps = await store.run(query("errors_queues", _CATEGORIES, {"look_at": LOOK_AT}, list))
    of_heads = await store.run(query("errors_queues", _BY_NAME, (), list))
    return tuple(sorted({*given, *(name for [name] in (*of_steps, *of_heads))}))


async def errors_in(
    store: AsyncStore, queue: str, after: str | None, limit: int
) -> tuple[list[FailedCopy], str | None]:
    """Return the messages of an errors queue that are not settled, newest first."""
    [below] = place(after, int) or (2**63 - 1,)
    arguments = {"queue": queue, "below": below, "look_at": MOST_SETTLED}
    rows: list[Row] = await store.run(query("errors", _ERRORS, arguments, list))
    found = [
        FailedCopy(at, type, utc(time), error)
        for at, type, time, error, settled, is_error in rows
        if is_error and not settled
    ]
    if len(found) > limit:
        return found[:limit], cursor(found[limit - 1].global_position)
    return found, cursor(rows[-1][0]) if len(rows) == MOST_SETTLED else None


async def settle(store: AsyncStore, global_position: int, what: str, who: str) -> None:
    """Record that a message of an errors queue was Dropped or Retried: once."""
    await _failed(store, global_position)
    try:
        await store.write_message(*_settled(global_position, what, who), expected_version=-1)
    except WrongExpectedVersion:
        raise _settled_already(global_position) from None


async def retry_error(
    store: AsyncStore, global_position: int, who: str, data: dict[str, Any] | None = None
) -> None:
    """Write a copy of a failed message, or its edited data, to the stream that it came from."""
    failed = await _failed(store, global_position)
    facts = dict(failed.metadata or {})
    stream_name = facts.get("failed_stream_name")
    if not isinstance(stream_name, str):
        expected = "one with the stream that it came from in its metadata"
        raise ValidationError("message", global_position, expected)
    of_step = ("error", "failed_stream_name", "failed_global_position", "pipeline", "processor")
    metadata = {k: v for k, v in facts.items() if k not in (*of_step, "delivery")}
    copy = Message(
        failed.type,
        failed.data if data is None else data,
        {
            **metadata,
            "causation_id": str(failed.id),
            "retry_of_global_position": facts["failed_global_position"],
        },
    )
    try:
        async with store.transaction() as transaction:
            stream, type, record = _settled(global_position, "Retried", who)
            record |= {"id": str(copy.id)}
            await transaction.write_message(stream, type, record, expected_version=-1)
            await transaction.write_messages(stream_name, [copy])
    except WrongExpectedVersion:
        raise _settled_already(global_position) from None


def _settled(global_position: int, what: str, who: str) -> tuple[str, str, dict[str, Any]]:
    stream_name = f"penstock:settled-{global_position}"
    return stream_name, what, {"global_position": global_position, "who": who}


def _settled_already(global_position: int) -> StateChanged:
    return StateChanged(f"error {global_position}", "waiting", "retried or dropped")


async def _failed(store: AsyncStore, global_position: int) -> Any:
    try:
        found = await recorded(store, global_position)
    except MessageNotFound:
        raise DeadLetterNotFound(f"error/{global_position}") from None
    if "failed_global_position" not in (found.metadata or {}):
        raise DeadLetterNotFound(f"error/{global_position}")
    return found
