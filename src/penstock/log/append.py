"""Append messages, with or without a guard."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, LiteralString

from penstock.database.arrays import text_array
from penstock.database.batch import batch_item
from penstock.database.edition import Edition
from penstock.database.operation import (
    BatchGuard,
    BatchItem,
    LateStatement,
    Operation,
    Statement,
)
from penstock.database.waiters import written, written_one
from penstock.errors import ValidationError
from penstock.log import write
from penstock.log.boundary import as_guard
from penstock.log.context import LogContext, SentMessage
from penstock.log.guard import Guard
from penstock.message import Message
from penstock.message.typed import TypedMessage

SEEN_AT_MOST = 50  # ranges or new positions of a guard; from there on its `low` is raised
_UNGUARDED: LiteralString = (
    "select null, penstock.append_one(%s, %s::uuid, %s, %s::jsonb, %s::jsonb, %s)"
)
_APPEND_ONE: LiteralString = (
    "penstock.append_one(%s, %s::uuid, %s, %s::jsonb, %s::jsonb, %s, "
    "%s::text[], %s::text[], %s::text[], %s, %s::int8multirange)"
)
_GUARDED: LiteralString = f"select null, {_APPEND_ONE}"
_LONG_GUARD: LiteralString = (
    "select penstock.advanced_low(%s::jsonb, array[a.position]), a.position"  # noqa: S608
    f" from {_APPEND_ONE} as a(position)"
)
_FACTS = {guarded: MappingProxyType({"count": 1, "guarded": guarded}) for guarded in (False, True)}


@dataclass(frozen=True, slots=True)
class Appended:
    """Where messages were appended, and the guard to use for the next append."""

    #: the global position of the last one
    position: int
    #: the global positions of all of them
    positions: tuple[int, ...]
    #: the guard for the next append, which covers these messages too; None if there was no guard
    guard: Guard | None


def append(
    context: LogContext,
    messages: Iterable[Message | TypedMessage],
    guard: Guard | None = None,
    stream_name: str | None = None,
    expected_version: int | None = None,
) -> Operation[Appended]:
    """Append messages, all or none, unless a message that the guard watches was written since."""
    context.require_penstock("append")
    if stream_name is not None:
        write.check_stream_name(stream_name)
    elif expected_version is not None:
        raise ValidationError("stream_name", stream_name, "given together with expected_version")
    write.check_version(expected_version)
    if guard is not None:
        if not isinstance(guard, Guard):
            raise ValidationError("guard", guard, "a Guard")
        as_guard(guard)
    rows = _rows(context, write.checked_messages(messages), stream_name)
    beside = context.edition is Edition.ON_MESSAGE_DB
    if len(rows) == 1 and not beside:
        return _append_one(rows[0], guard, stream_name, expected_version)
    watched = None if guard is None else guard.as_json()
    long_guard = watched if _is_long(guard, len(rows)) else None
    lists = None if guard is None else _lists(guard)
    statement = Statement(
        "select penstock.advanced_low(%s::jsonb, a.positions), a.positions from penstock.append("
        "%s, %s::uuid[], %s::text[], %s::text[], %s::text[], %s, %s::jsonb, %s) as a(positions)",
        (long_guard, stream_name, *write.as_arrays(rows), expected_version, watched, beside),
    )
    return Operation(
        "append",
        (statement,),
        lambda answer: _appended(guard, answer[0][0], tuple(answer[0][1])),
        {"count": len(rows), "guarded": guard is not None},
        _notifies({type for _, type, *_ in rows}, stream_name),
        item=None if beside else _batch_item(rows, guard, lists, stream_name, expected_version),
    )


def _append_one(
    row: SentMessage, guard: Guard | None, stream_name: str | None, expected_version: int | None
) -> Operation[Appended]:
    """Append one message, through a function that is faster than `penstock.append`."""
    id, type, data, metadata = row
    lists = None if guard is None else _lists(guard)

    def arguments() -> tuple[Any, ...]:
        sent = (stream_name, id.hex, type, data, metadata, expected_version)
        return sent if lists is None else (*sent, *_arrays(lists, type))

    statement: Statement | LateStatement
    if guard is None:
        statement = LateStatement(_UNGUARDED, arguments)
    elif _is_long(guard, 1):
        statement = Statement(_LONG_GUARD, (guard.as_json(), *arguments()))
    else:
        statement = LateStatement(_GUARDED, arguments)
    return Operation(
        "append",
        (statement,),
        lambda answer: _appended(guard, answer[0][0], (answer[0][1],)),
        _FACTS[guard is not None],
        written_one(type if stream_name is None else stream_name, type),
        item=_batch_item([row], guard, lists, stream_name, expected_version),
    )


def _batch_item(
    rows: Sequence[SentMessage],
    guard: Guard | None,
    lists: BatchGuard | None,
    stream_name: str | None,
    expected_version: int | None,
) -> BatchItem | None:
    """Return what a batch needs of this append. Batches do not raise the `low` of a guard."""
    if _is_long(guard, len(rows)):
        return None
    return batch_item(
        rows,
        stream_name,
        expected_version,
        lists,
        lambda _, positions: _appended(guard, None, tuple(positions)),
    )


def _notifies(types: set[str], stream_name: str | None) -> frozenset[str]:
    """Return whom to wake. A message without a stream is in the category of its type."""
    return written(types if stream_name is None else [stream_name], types)


def several(
    messages: Message | TypedMessage | Iterable[Message | TypedMessage],
) -> list[Message | TypedMessage]:
    """Return one message, or several, as a list."""
    return [messages] if isinstance(messages, Message | TypedMessage) else write.listed(messages)


def _lists(guard: Guard) -> BatchGuard:
    """Return the conditions of a guard as lists, and what it has seen."""
    types, names, values = [], [], []
    for one in guard.conditions:
        types.append(one.type)
        names.append(one.name or "")
        values.append(one.type if one.value is None else one.value)
    return BatchGuard(types, names, values, guard.low, guard.seen_ranges())


def _arrays(lists: BatchGuard, type: str) -> tuple[str | None, str, str, str, str]:
    """Return the guard's arguments of `penstock.append_one`, for a message of this type."""
    return (
        None if lists.types.count(type) == len(lists.types) else text_array(lists.types),
        text_array(lists.names),
        text_array(lists.values),
        str(lists.low),
        lists.seen,
    )


def _is_long(guard: Guard | None, appended: int) -> bool:
    """Whether a guard has so many ranges that its `low` is raised."""
    return guard is not None and max(len(guard.seen), appended) >= SEEN_AT_MOST


def _appended(guard: Guard | None, low: int | None, positions: tuple[int, ...]) -> Appended:
    return Appended(positions[-1], positions, guard.after(positions, low) if guard else None)


def _rows(
    context: LogContext, messages: Sequence[Message], stream_name: str | None
) -> list[SentMessage]:
    """Return id, type, data and metadata of each message, as they are sent."""
    if stream_name is None:
        for message in messages:
            if "-" in message.type:
                raise ValidationError("type", message.type, "a name without '-', or give a stream")
    named = context.interceptors  # only interceptors need the name of a message's own stream
    return [
        context.encode(stream_name or (f"{message.type}-{message.id}" if named else ""), message)
        for message in messages
    ]
