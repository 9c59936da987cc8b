"""Declared message types, whose attributes are indexed.

A typed message class is declared to the database when a store first uses it. Older messages of the
type are indexed slice by slice, while writers continue. `declare_async.py` does the I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.database.operation import Operation, call
from penstock.errors import ValidationError
from penstock.log.boundary import as_guard
from penstock.log.context import LogContext
from penstock.log.guard import Guard
from penstock.message import check_text
from penstock.message.conditions import QueryCondition
from penstock.message.typed import TypedMessage, find_class, is_typed_class


def declare(context: LogContext, type: str, attributes: Sequence[str]) -> Operation[None]:
    """Declare the attributes of a message type."""
    context.require_penstock("attributes")
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


def checked_classes(classes: Iterable[type[TypedMessage]]) -> list[type[TypedMessage]]:
    """Return the classes; refuse anything but typed message classes."""
    for one in classes:
        if not is_typed_class(one):
            raise ValidationError("classes", one, "typed message classes")
    return list(classes)


def classes_of(messages: Iterable[object]) -> set[type[TypedMessage]]:
    """Return the classes of the typed messages among these."""
    return {type(one) for one in messages if isinstance(one, TypedMessage)}


def known_classes(types: Iterable[str]) -> set[type[TypedMessage]]:
    """Return the typed message classes that this process has for these types."""
    return {found for type in types if (found := find_class(type)) is not None}


def watched_classes(guard: Guard | Iterable[QueryCondition]) -> set[type[TypedMessage]]:
    """Return the typed message classes of this process that a guard watches."""
    return known_classes([one.type for one in as_guard(guard).conditions])
