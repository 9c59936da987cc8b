"""What can be waited for: a reader that has come to a position, or a task that is finished.

A reader has a tailer for each queue that it reads, a category, `$all` or a stream. It has handled
everything up to a global position if there is no message after its tailers and up to there. What
may still be committed up to there is not known before the watermark has passed it: see
`wait_until_async.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from penstock.database.operation import Operation, Row, call, only_value
from penstock.database.waiters import of_group, of_save
from penstock.errors import ReaderNotFound, ValidationError
from penstock.log.write import check_category
from penstock.message import as_uuid, check_text, names
from penstock.queues.operations import stream_of

#: how far a reader has come in each of its queues
Tailers = Mapping[str, int]


@dataclass(frozen=True)
class Reader:
    """A reader of the log that can be waited for."""

    #: its kind and name, for an error message
    name: str
    #: how far it has come; the operation raises if there is no such reader
    progress: Operation[Tailers]
    #: whom to wake, so that it stores how far it has come
    asks: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Task:
    """A message of the outbox, or a join, that can be waited for."""

    name: str
    #: its state
    state: Operation[str]
    #: the states in which it is not finished
    unfinished: tuple[str, ...]


def consumer(category: str, consumer_id: str) -> Reader:
    """Wait for a consumer, by the position that it has stored."""
    if category != "$all":
        check_category(category)
    check_text("consumer_id", consumer_id)
    key, name = f"{category}-{consumer_id}", f"consumer {consumer_id!r} of {category}"
    operation = call(
        "consumer_progress",
        "select coalesce(p.position, penstock.position_in(m.data)) from (values (1)) as one"
        " left join lateral penstock.latest_position(%s) p on true"
        " left join lateral (select m.data from message_store.messages m"
        " where m.stream_name = %s order by m.position desc limit 1) m on true",
        (key, f"{category}:position-{consumer_id}"),
        lambda rows: {category: _found(name, rows)},
    )
    return Reader(name, operation, frozenset([of_save(category, consumer_id)]))


def categories_of(consumer_id: str) -> Operation[list[str]]:
    """Return the categories in which a consumer of this id has stored a position."""
    check_text("consumer_id", consumer_id)
    return call(
        "categories_of_consumer",
        "select distinct category from penstock.stored_positions()"
        " where consumer_id = %s order by 1",
        (consumer_id,),
        lambda rows: [category for (category,) in rows],
    )


def session(queue: str, consumer_id: str) -> Reader:
    """Wait for a consumer of a queue, by the offset that it has committed."""
    check_text("consumer_id", consumer_id)
    stream_name, name = stream_of(queue), f"consumer {consumer_id!r} of queue {queue}"
    operation = call(
        "session_progress",
        "select (penstock.latest_session(%s, %s, false)).next_offset - 1",
        (stream_name, consumer_id),
        lambda rows: {stream_name: _found(name, rows)},
    )
    return Reader(name, operation)


def group(group_id: str) -> Reader:
    """Wait for a partitioned group: for all its partitions, except those that are parked."""
    check_text("group_id", group_id)
    name = f"consumer group {group_id!r}"
    operation = call(
        "group_progress",
        "select least(p.routed_to, penstock.first_unhandled(g.id) - 1)"
        " from penstock.consumer_groups g"
        " cross join lateral penstock.latest_group_progress(g.id) p where g.group_id = %s",
        (group_id,),
        lambda rows: {"": _found(name, rows)},
    )
    return Reader(name, operation, frozenset([of_group(group_id)]))


def processor(named: tuple[str, str]) -> Reader:
    """Wait for a processor of a pipeline that reads queues."""
    if not isinstance(named, tuple | list) or len(named) != 2:
        raise ValidationError("processor", named, "a pair: the pipeline and the processor")
    pipeline, processor = named
    check_text("pipeline", pipeline)
    check_text("processor", processor)
    name = f"processor {processor!r} of pipeline {pipeline}"

    def decode(rows: list[Row]) -> Tailers:
        if not rows or not rows[0][0]:
            raise ReaderNotFound(name)
        return {queue: int(position) for queue, position in rows[0][0].items()}

    sql = "select s.tailers from penstock.latest_processor_progress(%s, %s) s"
    return Reader(name, call("processor_progress", sql, (pipeline, processor), decode))


def outbox_message(id: UUID | str) -> Task:
    """Wait for a message of the outbox to be done, or to fail for good."""
    name = f"outbox message {as_uuid(id)}"
    sql = "select state from penstock.outbox where id = %s"
    operation = call("outbox_state", sql, (as_uuid(id),), lambda rows: _found(name, rows))
    return Task(name, operation, ("ready", "in_progress"))


def join(id: UUID | str) -> Task:
    """Wait for a join to be resolved, to fail or to be cancelled."""
    name = f"join {as_uuid(id)}"
    sql = (
        "select penstock.join_status(join_progress) from penstock.join_progress where join_id = %s"
    )
    operation = call("join_state", sql, (as_uuid(id),), lambda rows: _found(name, rows))
    return Task(name, operation, ("pending",))


def unread(queue: str, after: int, until: int) -> Operation[bool]:
    """Return whether a queue has messages after a tailer, up to a global position."""
    if queue == "":  # a group's tailer counts the whole log
        condition, arguments = "%s < %s", (after, until)
        return call("unread", f"select {condition}", arguments, only_value)
    if queue == "$all":
        where = (
            "m.global_position > %s and m.global_position <= %s"
            " and not penstock.is_bookkeeping(m.stream_name)"
        )
        values: tuple[Any, ...] = (after, until)
    elif names.is_category(queue):
        where = (
            "(message_store.category(m.stream_name), m.global_position) > (%s, %s)"
            " and (message_store.category(m.stream_name), m.global_position) <= (%s, %s)"
        )
        values = (queue, after, queue, until)
    else:
        where = "m.stream_name = %s and m.position > %s and m.global_position <= %s"
        values = (queue, after, until)
    sql = f"select exists (select from message_store.messages m where {where})"  # noqa: S608
    return call("unread", sql, values, only_value)


def _found(name: str, rows: list[Row]) -> Any:
    if not rows or rows[0][0] is None:
        raise ReaderNotFound(name)
    return rows[0][0]


def one_of(**given: object) -> str:
    """Return the name of the only argument that is given; refuse none and several."""
    found = [name for name, value in given.items() if value is not None]
    if len(found) != 1:
        expected = f"exactly one of {', '.join(given)}"
        raise ValidationError("wait_until", ", ".join(found) or None, expected)
    return found[0]
