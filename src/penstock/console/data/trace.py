"""From any message its causes and its consequences, as a tree.

What links them, and how it is found:

- *causation*: `causation_id` in a message's metadata is the id of the message, or of the outbox
  message, that caused it. Upwards it is an index look-up. Downwards there is no index: the next
  20,000 messages after the first cause are looked at.
- *correlation*: an outbox message has a correlation id, which is that of the messages, or the id
  of one. Of the outbox those are looked at whose ids (UUIDs of version 7) have the trace's time.
- *joined*, *follow-up*: a message of the outbox is a step of a join, or follows from one.
- *read by*: a step of a pipeline has read the message: the range of its Snapshot has it. Which of
  the step's outputs follow from which of its inputs, only their causation tells: without one, they
  are linked by the *same step*.
- *published by*: the metadata of a pipeline's output names the delivery, the hash of the Snapshot.
- *wrote*: a snapshot of a table of the lake names the delivery, too.

The tree has at most 500 nodes. What was not looked at is listed with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import LiteralString
from uuid import UUID

from penstock.console.data.joins import JoinDetail, join, joins_of
from penstock.console.data.log import position_at
from penstock.console.data.message_detail import recorded
from penstock.console.data.outbox_rows import COLUMNS, OutboxRow, as_row
from penstock.console.data.pages import query
from penstock.console.data.steps import FoundStep, step_of_delivery
from penstock.console.data.trace_nodes import CausedMessage, TraceNode, as_caused
from penstock.console.data.trace_tree import MOST_NODES, Tree
from penstock.errors import JoinNotFound, MessageNotFound, ValidationError
from penstock.message import RecordedMessage, as_uuid
from penstock.store_async import AsyncStore

#: causes above what was asked for
MOST_CAUSES = 50
#: messages and outbox messages that are looked at for consequences
LOOK_AT = 20_000
LOOK_AT_OUTBOX = 5_000

Found = RecordedMessage | OutboxRow | JoinDetail | FoundStep


@dataclass(frozen=True, slots=True)
class Trace:
    """The first cause that is known, and everything that followed."""

    root: TraceNode
    #: what was not looked at, one sentence each
    not_looked_at: tuple[str, ...]


async def trace(store: AsyncStore, key: int | str | UUID) -> Trace:
    """Return the causes and consequences of a message: its global position, or its id.

    The id may also be that of an outbox message or of a join.
    """
    store.context.require_penstock("a trace")
    first = await _asked_for(store, key)
    tree = Tree(store, asked_for=_id(first))
    causes = await _causes(tree, first)
    root = causes[-1] if causes else first
    await _look_ahead(tree, root, first)
    for one in (first, *causes[:-1]):  # they may be further away than what was looked at
        if isinstance(one, RecordedMessage):
            tree.add(as_caused(one))
        elif isinstance(one, OutboxRow):
            tree.add_outbox(one)
    node = await _root_node(tree, root, first)
    return Trace(node, tuple(tree.not_looked_at))


async def _asked_for(store: AsyncStore, key: int | str | UUID) -> Found:
    try:
        return await recorded(store, key)
    except MessageNotFound:
        if isinstance(key, int) or (isinstance(key, str) and key.isdigit()):
            raise
    id = as_uuid(key)
    if (message := await _outbox_message(store, id)) is not None:
        return message
    try:
        return await join(store, id)
    except JoinNotFound:
        hint = "neither a message, nor an outbox message, nor a join has this id"
        raise MessageNotFound(str(key), hint) from None


def _id(found: Found) -> str:
    if isinstance(found, JoinDetail):
        return str(found.row.join_id)
    return found.step.delivery if isinstance(found, FoundStep) else str(found.id)


async def _outbox_message(store: AsyncStore, id: UUID) -> OutboxRow | None:
    sql: LiteralString = f"select {COLUMNS} from penstock.outbox o where o.id = %s"  # noqa: S608
    rows = await store.run(query("outbox_message", sql, (id,), list))
    return as_row(rows[0]) if rows else None


async def _causes(tree: Tree, first: Found) -> list[Found]:
    """Return the causes above what was asked for, the nearest first."""
    causes: list[Found] = []
    seen, current = {_id(first)}, first
    for _ in range(MOST_CAUSES):
        cause = await _cause(tree, current)
        if cause is None or _id(cause) in seen:
            return causes
        seen.add(_id(cause))
        causes.append(cause)
        current = cause
    tree.note(f"only the {MOST_CAUSES} nearest causes were looked at")
    return causes


async def _cause(tree: Tree, of: Found) -> Found | None:
    if isinstance(of, OutboxRow):
        for one in await joins_of(tree.store, of.id):
            if of.id in (one.follow_up_id, one.wait_id):
                return await join(tree.store, one.join_id)
        return await _by_id(tree.store, of.correlation_id)
    if not isinstance(of, RecordedMessage):
        return None  # the steps of a join are below it, the ranges of a step are in its subtitle
    cause = await _by_id(tree.store, of.causation_id)
    if cause is None and of.causation_id is not None:
        tree.note(f"the cause of {of.global_position}, {of.causation_id}, is not in this database")
    delivery = (of.metadata or {}).get("delivery")
    if cause is None and isinstance(delivery, str):
        step = await step_of_delivery(tree.store, of.global_position, delivery)
        if step is None:
            tree.note(f"the step that published {of.global_position} was not found")
        return step
    return cause


async def _by_id(store: AsyncStore, text: str | None) -> Found | None:
    """Return the message or outbox message with an id that was found in metadata."""
    try:
        id = as_uuid(text)
    except ValidationError:
        return None
    try:
        return await recorded(store, id)
    except MessageNotFound:
        return await _outbox_message(store, id)


#: messages that these have caused, or that what they caused has; or of these correlations
_CAUSED: LiteralString = """
with recursive following as materialized (
  select m.id::text as id, m.global_position, m.type, m.stream_name, m.position, m.time,
    m.metadata ->> 'causation_id' as cause, m.metadata ->> 'correlation_id' as correlation,
    m.metadata ->> 'delivery' as delivery
  from (
    select m.* from message_store.messages m
    where m.global_position > %(after)s order by m.global_position limit %(look_at)s
  ) m
  where pg_column_size(m.metadata) <= 16384
), caused(id, level) as (
  select f.id, 1 from following f where f.cause = any (%(ids)s)
  union
  select f.id, c.level + 1 from caused c join following f on f.cause = c.id where c.level < 50
)
select f.* from following f
where f.id in (select c.id from caused c) or f.correlation = any (%(correlations)s)
order by f.global_position limit %(most)s"""
_OF_OUTBOX: LiteralString = f"""
with looked_at as materialized (
  select o.* from penstock.outbox o where o.id >= %(first)s order by o.id limit %(look_at)s
)
select {COLUMNS} from looked_at o
where o.correlation_id = any (%(correlations)s) order by o.id limit %(most)s"""  # noqa: S608


async def _look_ahead(tree: Tree, root: Found, first: Found) -> None:
    """Find what followed from the root, or is correlated with it, among what was written later."""
    of_messages = [one for one in (root, first) if isinstance(one, RecordedMessage | OutboxRow)]
    ids = {str(one.id) for one in of_messages}
    correlations = ids | {one.correlation_id for one in of_messages if one.correlation_id}
    begins = _begin(root) - timedelta(minutes=1)
    after = (
        root.global_position
        if isinstance(root, RecordedMessage)
        else await position_at(tree.store, begins) - 1
    )
    arguments = {
        "after": after,
        "look_at": LOOK_AT,
        "most": MOST_NODES,
        "ids": sorted(ids),
        "correlations": sorted(correlations),
    }
    caused = await tree.store.run(query("caused", _CAUSED, arguments, list))
    for row in caused:
        tree.add(CausedMessage(*row))
    correlations |= {row[0] for row in caused}
    milliseconds = max(0, int(begins.timestamp() * 1000))
    arguments = {
        "first": UUID(int=milliseconds << 80),
        "look_at": LOOK_AT_OUTBOX,
        "most": MOST_NODES,
        "correlations": sorted(correlations),
    }
    of_outbox = await tree.store.run(query("correlated", _OF_OUTBOX, arguments, list))
    tree.outbox = [as_row(row) for row in of_outbox]
    if await tree.store.run(query("beyond", _BEYOND, (after, LOOK_AT), list)):
        tree.note(
            f"of the messages after {after}, the first {LOOK_AT:,} were looked at: "
            "causes and correlations are not indexed"
        )
    tree.note(
        f"of the outbox, {LOOK_AT_OUTBOX:,} messages from a minute before the trace on were looked "
        "at, by the time in their ids: correlations are not indexed"
    )


_BEYOND: LiteralString = """
select from message_store.messages m where m.global_position > %s
order by m.global_position offset %s limit 1"""


def _begin(found: Found) -> datetime:
    if isinstance(found, RecordedMessage):
        return found.time
    if isinstance(found, FoundStep):
        begun = found.step.begun_at or found.step.committed_at
        return begun or datetime.now(UTC)
    return found.row.created_at if isinstance(found, JoinDetail) else found.created_at


async def _root_node(tree: Tree, root: Found, first: Found) -> TraceNode:
    if isinstance(root, RecordedMessage):
        node = await tree.message(as_caused(root), "", certain=True, is_root=True)
    elif isinstance(root, OutboxRow):
        node = await tree.outbox_message(root, "", certain=True)
    elif isinstance(root, JoinDetail):
        node = await tree.join(root.row, "")
    else:
        output = [as_caused(first)] if isinstance(first, RecordedMessage) else []
        node = await tree.step(root, "", output)
    if node is None:  # cannot be: the tree is empty
        raise MessageNotFound(_id(root), "it has no trace")
    return node
