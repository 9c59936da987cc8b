"""Append under a guard, and read what a decision needs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import LiteralString

import msgspec

from penstock.database.arrays import text_array, uuid_array
from penstock.database.edition import Edition
from penstock.database.operation import Operation, Row, Statement, call
from penstock.errors import UnsupportedEdition, ValidationError
from penstock.guard import Guard, QueryCondition, grouped
from penstock.log.context import LogContext, SentMessage, check_position
from penstock.log.write import check_stream_name, check_version, checked_messages, listed
from penstock.message import Message, RecordedMessage, check_text
from penstock.typed import TypedMessage, class_of, find_class, type_name

FILL_PAUSE = 0.05  # seconds
PAUSES = 20  # for statements under way to end
SLICES_AT_ONCE = 100  # of ten thousand positions
MOST_CONDITIONS = 5_000  # each is a lock, and PostgreSQL has room for some thousands
SEEN_AT_MOST = 50  # positions that a guard carries along before its `low` is moved
MessageType = str | type[TypedMessage]
_GUARDED: LiteralString = (
    "penstock.append_one(%s, %s::uuid, %s, %s::jsonb, %s::jsonb, %s, "
    "%s::text[], %s::text[], %s::text[], %s, %s::bigint[])"
)


@dataclass(frozen=True, slots=True)
class Appended:
    """Where messages were appended, and the guard to use for the next append."""

    #: the global position of the last one
    position: int
    #: the global positions of all of them
    positions: tuple[int, ...]
    #: the guard that was used, having seen these messages too; None if there was none
    guard: Guard | None


def append(
    context: LogContext,
    messages: Iterable[Message | TypedMessage],
    guard: Guard | None = None,
    *,
    stream_name: str | None = None,
    expected_version: int | None = None,
) -> Operation[Appended]:
    """Append messages, all or none, if nothing that the guard watches has been written since."""
    _check_edition(context, "append")
    if stream_name is not None:
        check_stream_name(stream_name)
    elif expected_version is not None:
        raise ValidationError("stream_name", stream_name, "the stream that has a version")
    check_version(expected_version)
    if guard is not None:
        if not isinstance(guard, Guard):
            raise ValidationError("guard", guard, "a Guard")
        as_guard(guard)
    rows = _rows(context, checked_messages(messages), stream_name)
    beside = context.edition is Edition.BESIDE
    if len(rows) == 1 and not beside:
        return _append_one(rows[0], guard, stream_name, expected_version)
    watched = None if guard is None else _json(guard.as_json())
    ids, types, documents, metadatas = zip(*rows, strict=True)
    return call(
        "append",
        "select penstock.advanced_low(%s::jsonb), penstock.append("
        "%s, %s::uuid[], %s::text[], %s::text[], %s::text[], %s, %s::jsonb, %s)",
        (
            watched if _is_long(guard) else None,
            stream_name,
            uuid_array(ids),
            text_array(types),
            text_array(documents),
            text_array(metadatas),
            expected_version,
            watched,
            beside,
        ),
        lambda answer: _appended(guard, answer[0][0], tuple(answer[0][1])),
        count=len(rows),
        guarded=guard is not None,
    )


def _append_one(
    row: SentMessage, guard: Guard | None, stream_name: str | None, expected_version: int | None
) -> Operation[Appended]:
    """Append one message, the shorter way."""
    id, type, data, metadata = row
    sent = (stream_name, id.hex, type, data, metadata, expected_version)
    if guard is None:
        statement = Statement(
            "select null, penstock.append_one(%s, %s::uuid, %s, %s::jsonb, %s::jsonb, %s)", sent
        )
    elif _is_long(guard):
        statement = Statement(
            f"select penstock.advanced_low(%s::jsonb), {_GUARDED}",
            (_json(guard.as_json()), *sent, *_lists(guard, type)),
        )
    else:
        statement = Statement(f"select null, {_GUARDED}", (*sent, *_lists(guard, type)))
    return Operation(
        "append",
        (statement,),
        lambda answer: _appended(guard, answer[0][0], (answer[0][1],)),
        {"count": 1, "guarded": guard is not None},
    )


def read_boundary(
    context: LogContext,
    conditions: Iterable[QueryCondition],
    after: int = 0,
    limit: int | None = None,
) -> Operation[tuple[list[RecordedMessage], Guard]]:
    """Read the messages that match, and the guard that says so."""
    _check_edition(context, "read")
    wanted = tuple(conditions)
    guard = Guard(wanted)  # refuses an empty list, and what is no condition
    check_position("after", after)
    if limit is not None:
        check_position("limit", limit, 1)

    def decode(rows: list[Row]) -> tuple[list[RecordedMessage], Guard]:
        low, seen = rows[0][:2]
        found = [row[2:] for row in rows if row[2] is not None]
        return context.decode(found), Guard(guard.conditions, low, tuple(seen))

    return call(
        "read",
        "select * from penstock.read_boundary(%s::jsonb, %s, %s)",
        (_json(grouped(wanted)), after, limit),
        decode,
        conditions=len(wanted),
    )


def lock_guard(context: LogContext, guard: Guard | Iterable[QueryCondition]) -> Operation[None]:
    """Keep others from deciding on the same boundary until the transaction ends."""
    conditions = as_guard(guard).conditions
    return call(
        "lock",
        "select penstock.lock_guard(%s::jsonb)",
        (_json(grouped(conditions)),),
        lambda _: None,
    )


def partition_conditions(
    attributes: Mapping[str, object], handled_types: Sequence[MessageType]
) -> list[QueryCondition]:
    """Return the conditions of a partition, for classes or names of classes."""
    if not isinstance(attributes, Mapping) or not attributes:
        raise ValidationError("attributes", attributes, "at least one attribute and its value")
    check_types(handled_types)
    classes = [class_of(type_name(one)) for one in handled_types]
    for name in attributes:
        check_text("attribute", name)
        if not any(name in one.indexed_attribute_names for one in classes):
            raise ValidationError("attributes", name, "indexed attributes of the handled types")
    return [
        QueryCondition(one.message_type, name, value if isinstance(value, str) else text)
        for one in classes
        for name, value in attributes.items()
        if name in one.indexed_attribute_names and (text := one.condition_text(name, value))
    ]


def check_types(handled_types: Sequence[MessageType]) -> None:
    """Refuse anything but a list of classes or names of types."""
    if isinstance(handled_types, str) or not isinstance(handled_types, Collection):
        raise ValidationError("handled_types", handled_types, "a list of at least one type")
    if not handled_types:
        raise ValidationError("handled_types", handled_types, "a list of at least one type")
    for one in handled_types:
        if not isinstance(one, str) and not _is_class(one):
            raise ValidationError("handled_types", one, "a typed message class, or a type's name")


def checked_classes(classes: Iterable[type[TypedMessage]]) -> list[type[TypedMessage]]:
    """Return the classes; refuse what is no class of typed messages."""
    for one in classes:
        if not _is_class(one):
            raise ValidationError("classes", one, "classes of typed messages")
    return list(classes)


def declare(context: LogContext, type: str, attributes: Sequence[str]) -> Operation[None]:
    """Declare the attributes of a message type."""
    _check_edition(context, "attributes")
    check_text("type", type)
    for name in attributes:
        check_text("attribute", name)
    return call(
        "declare_type",
        "select penstock.declare_type(%s, %s::text[])",
        (type, list(attributes)),
        lambda _: None,
        type=type,
    )


def fill(context: LogContext, type: str) -> Operation[tuple[int, int] | None]:
    """Index the next slice of older messages of a type; None when all are indexed."""
    return call(
        "fill_attributes",
        "select * from penstock.fill_attributes(%s)",
        (type,),
        lambda rows: None if rows[0][0] is None else (rows[0][0], rows[0][1]),
        type=type,
    )


def several(
    messages: Message | TypedMessage | Iterable[Message | TypedMessage],
) -> list[Message | TypedMessage]:
    """Return one message, or several, as a list."""
    return [messages] if isinstance(messages, Message | TypedMessage) else listed(messages)


def classes_of(messages: Iterable[object]) -> set[type[TypedMessage]]:
    """Return the classes of the typed messages among these."""
    return {type(one) for one in messages if isinstance(one, TypedMessage)}


def known_classes(types: Iterable[str]) -> set[type[TypedMessage]]:
    """Return the classes of those types that have one in this process."""
    return {found for type in types if (found := find_class(type)) is not None}


def watched_classes(guard: Guard | Iterable[QueryCondition]) -> set[type[TypedMessage]]:
    """Return the classes, of those that this process has, whose messages a guard watches."""
    return known_classes([one.type for one in as_guard(guard).conditions])


def as_guard(guard: Guard | Iterable[QueryCondition]) -> Guard:
    """Return a guard, or the one of these conditions; refuse what is neither."""
    checked = guard if isinstance(guard, Guard) else Guard(guard)  # type: ignore[arg-type]
    if len(checked.conditions) > MOST_CONDITIONS:
        raise ValidationError(
            "guard", f"{len(checked.conditions)} conditions", f"at most {MOST_CONDITIONS:,} of them"
        )
    return checked


def pause_if_waiting(state: tuple[int, int]) -> None:
    """Wait a moment where filling cannot begin, since older transactions are still open."""
    if state[0] == 0:
        time.sleep(FILL_PAUSE)


async def pause_if_waiting_async(state: tuple[int, int]) -> None:
    """Do the same in async code."""
    if state[0] == 0:
        await asyncio.sleep(FILL_PAUSE)


def _lists(guard: Guard, type: str) -> tuple[str | None, str, str, str, str]:
    """Return a guard as `penstock.append_one` takes it, beside a message of this type."""
    types, names, values = [], [], []
    for one in guard.conditions:
        types.append(one.type)
        names.append(one.name or "")
        values.append(one.type if one.name is None else one.value)
    return (
        None if types.count(type) == len(types) else text_array(types),
        text_array(names),
        text_array(values),
        str(guard.low),
        f"{{{','.join(map(str, guard.seen))}}}" if guard.seen else "{}",
    )


def _is_long(guard: Guard | None) -> bool:
    """Whether it is time to move a guard's `low`."""
    return guard is not None and len(guard.seen) >= SEEN_AT_MOST


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
    named = context.interceptors  # nobody else asks for the name that a message's own stream has
    return [
        context.encode(stream_name or (f"{message.type}-{message.id}" if named else ""), message)
        for message in messages
    ]


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _check_edition(context: LogContext, what: str) -> None:
    if not context.edition.has_watermark:
        raise UnsupportedEdition(f"{what} needs Penstock's schema: run `penstock init`")


def _is_class(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, TypedMessage)
