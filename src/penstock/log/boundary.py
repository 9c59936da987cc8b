"""Consistency boundaries: read the messages of a decision, and lock its conditions.

A boundary is made of indexed attributes. A typed message class is declared to the database when a
store first uses it. Older messages of the type are indexed slice by slice, while writers continue.
`declare_async.py` does the I/O.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.database.operation import GLOBAL_POSITION, Operation, Row, Stubs, call
from penstock.errors import ValidationError
from penstock.log.context import LogContext, check_position
from penstock.log.guard import Guard, grouped_json, ranges_of
from penstock.message import RecordedMessage, check_text
from penstock.message.conditions import QueryCondition
from penstock.message.typed import TypedMessage, class_of, find_class, is_typed_class, type_name

MOST_CONDITIONS = 5_000
MOST_TYPES = 400  # each may take a lock, and PostgreSQL's lock table holds a few thousand
MessageType = str | type[TypedMessage]
_DATA, _TIME = 5, 7  # columns of the type message_store.message


@dataclass(frozen=True, slots=True)
class ArchivedSlice:
    """The archived messages of a type to index next: those after a global position."""

    type: str
    #: the declaration of the type that they are indexed for
    declared_by: str
    #: where the archive is
    location: str
    categories: tuple[str, ...]
    after: int


@dataclass(frozen=True, slots=True)
class Filling:
    """How far the older messages of a type are indexed: of so many positions, so many."""

    filled_to: int
    fill_until: int
    #: set when only archived messages are left
    archived: ArchivedSlice | None = None


def read_boundary(
    context: LogContext, guard: Guard, after: int = 0, limit: int | None = None
) -> Operation[tuple[list[RecordedMessage], Guard]]:
    """Read the messages that match the guard's conditions, and the guard that covers them."""
    context.require_penstock("read")
    check_position("after", after)
    if limit is not None:
        check_position("limit", limit, 1)

    def decode(rows: list[Row]) -> tuple[list[RecordedMessage], Guard]:
        low, seen = rows[0][:2]
        found = [row[2:] for row in rows if row[2] is not None]
        return context.decode(found), Guard(guard.conditions, low, ranges_of(seen))

    return call(
        "read",
        "select * from penstock.read_boundary(%s::jsonb, %s, %s)",
        (grouped_json(guard.conditions), after, limit),
        decode,
        conditions=len(guard.conditions),
    ).with_archive(Stubs(2, context.lake_options))


def lock_guard(context: LogContext, guard: Guard | Iterable[QueryCondition]) -> Operation[None]:
    """Block other decisions on the same boundary until the transaction ends."""
    conditions = grouped_json(as_guard(guard).conditions)
    return call("lock", "select penstock.lock_guard(%s::jsonb)", (conditions,), lambda _: None)


def partition_conditions(
    attributes: Mapping[str, object], handled_types: Sequence[MessageType]
) -> list[QueryCondition]:
    """Return the conditions of a partition, for typed message classes or their types."""
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
    """Refuse anything but a list of typed message classes or types."""
    is_collection = isinstance(handled_types, Collection) and not isinstance(handled_types, str)
    if not is_collection or not handled_types:
        raise ValidationError("handled_types", handled_types, "a list of at least one type")
    for one in handled_types:
        if not isinstance(one, str) and not is_typed_class(one):
            raise ValidationError("handled_types", one, "a typed message class, or a type's name")


def as_guard(guard: Guard | Iterable[QueryCondition]) -> Guard:
    """Return the guard, or a new one with these conditions. Refuse too many of them."""
    checked = guard if isinstance(guard, Guard) else Guard(guard)  # type: ignore[arg-type]
    if len(checked.conditions) <= MOST_TYPES:
        return checked
    if len(checked.conditions) > MOST_CONDITIONS:
        expected = f"a guard with at most {MOST_CONDITIONS:,} conditions"
        raise ValidationError("guard", f"{len(checked.conditions)} conditions", expected)
    if (types := len({one.type for one in checked.conditions})) > MOST_TYPES:
        expected = f"a guard with at most {MOST_TYPES} message types"
        raise ValidationError("guard", f"{types} message types", expected)
    return checked


def declare(context: LogContext, one: type[TypedMessage]) -> Operation[None]:
    """Declare the attributes of a message type."""
    context.require_penstock("attributes")
    return call(
        "declare_type",
        "select penstock.declare_type(%s, %s::text[])",
        (check_text("type", one.message_type), list(one.indexed_attribute_names)),
        lambda _: None,
        type=one.message_type,
    )


def fill_attributes(type: str) -> Operation[Filling | None]:
    """Index the next slice of older messages of a type; None when all are indexed."""

    def decode(rows: list[Row]) -> Filling | None:
        filled_to, fill_until, declared_by, after, categories, location = rows[0]
        if filled_to is None:
            return None
        if location is None:
            return Filling(filled_to, fill_until)
        archived = ArchivedSlice(type, declared_by, location, tuple(categories), after)
        return Filling(filled_to, fill_until, archived)

    return call(
        "fill_attributes",
        "select filled_to, fill_until, declared_by::text, archived_after, categories, location"
        " from penstock.fill_attributes(%s)",
        (type,),
        decode,
        type=type,
    )


def fill_archived(archived: ArchivedSlice, rows: Sequence[Row], most: int) -> Operation[None]:
    """Index archived messages, the next of their type; fewer than `most` are the last."""
    until = rows[-1][GLOBAL_POSITION] if len(rows) == most else None
    return call(
        "fill_archived",
        "select penstock.fill_archived(%s, %s::xid8, %s, %s, %s, %s, %s::timestamp[])",
        (
            archived.type,
            archived.declared_by,
            archived.after,
            until,
            [one[GLOBAL_POSITION] for one in rows],
            [one[_DATA] for one in rows],
            [one[_TIME] for one in rows],
        ),
        lambda _: None,
        type=archived.type,
    )


def classes_of(messages: Iterable[object]) -> set[type[TypedMessage]]:
    """Return the classes of the typed messages among these."""
    return {type(one) for one in messages if isinstance(one, TypedMessage)}


def known_classes(types: Iterable[str]) -> set[type[TypedMessage]]:
    """Return the typed message classes that this process has for these types."""
    return {found for type in types if (found := find_class(type)) is not None}


def watched_classes(guard: Guard | Iterable[QueryCondition]) -> set[type[TypedMessage]]:
    """Return the typed message classes of this process that a guard watches."""
    return known_classes([one.type for one in as_guard(guard).conditions])
