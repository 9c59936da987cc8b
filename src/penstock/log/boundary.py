"""Consistency boundaries: read the messages of a decision, and lock its conditions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from penstock.database.operation import Operation, Row, call
from penstock.errors import ValidationError
from penstock.log.context import LogContext, check_position
from penstock.log.guard import Guard, grouped_json, ranges_of
from penstock.message import RecordedMessage, check_text
from penstock.message.conditions import QueryCondition
from penstock.message.typed import TypedMessage, class_of, is_typed_class, type_name

MOST_CONDITIONS = 5_000
MOST_TYPES = 400  # each may take a lock, and PostgreSQL's lock table holds a few thousand
MessageType = str | type[TypedMessage]


def read_boundary(
    context: LogContext,
    conditions: Iterable[QueryCondition],
    after: int = 0,
    limit: int | None = None,
) -> Operation[tuple[list[RecordedMessage], Guard]]:
    """Read the messages that match, and the guard that covers them."""
    context.require_penstock("read")
    wanted = tuple(conditions)
    guard = Guard(wanted)  # checks the conditions
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
        (grouped_json(wanted), after, limit),
        decode,
        conditions=len(wanted),
    )


def lock_guard(context: LogContext, guard: Guard | Iterable[QueryCondition]) -> Operation[None]:
    """Block other decisions on the same boundary until the transaction ends."""
    conditions = as_guard(guard).conditions
    return call(
        "lock",
        "select penstock.lock_guard(%s::jsonb)",
        (grouped_json(conditions),),
        lambda _: None,
    )


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
    if isinstance(handled_types, str) or not isinstance(handled_types, Collection):
        raise ValidationError("handled_types", handled_types, "a list of at least one type")
    if not handled_types:
        raise ValidationError("handled_types", handled_types, "a list of at least one type")
    for one in handled_types:
        if not isinstance(one, str) and not is_typed_class(one):
            raise ValidationError("handled_types", one, "a typed message class, or a type's name")


def as_guard(guard: Guard | Iterable[QueryCondition]) -> Guard:
    """Return the guard, or a new one with these conditions. Refuse too many of them."""
    checked = guard if isinstance(guard, Guard) else Guard(guard)  # type: ignore[arg-type]
    if len(checked.conditions) > MOST_CONDITIONS:
        expected = f"a guard with at most {MOST_CONDITIONS:,} conditions"
        raise ValidationError("guard", f"{len(checked.conditions)} conditions", expected)
    if (types := len({one.type for one in checked.conditions})) > MOST_TYPES:
        expected = f"a guard with at most {MOST_TYPES} message types"
        raise ValidationError("guard", f"{types} message types", expected)
    return checked
