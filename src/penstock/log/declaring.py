"""Declare typed messages to the database, so that they are found by their attributes.

Older messages of a type are indexed slice by slice, while others go on writing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence

from penstock.database.operation import Operation, call
from penstock.errors import ValidationError
from penstock.log.boundary import as_guard
from penstock.log.context import LogContext
from penstock.log.guard import Guard
from penstock.message import check_text
from penstock.message.conditions import QueryCondition
from penstock.message.typed import TypedMessage, find_class, is_typed_class

FILL_PAUSE = 0.05  # seconds
PAUSES = 20  # for statements under way to end
SLICES_AT_ONCE = 100  # of ten thousand positions


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
    """Return the classes; refuse what is no class of typed messages."""
    for one in classes:
        if not is_typed_class(one):
            raise ValidationError("classes", one, "classes of typed messages")
    return list(classes)


def classes_of(messages: Iterable[object]) -> set[type[TypedMessage]]:
    """Return the classes of the typed messages among these."""
    return {type(one) for one in messages if isinstance(one, TypedMessage)}


def known_classes(types: Iterable[str]) -> set[type[TypedMessage]]:
    """Return the classes of those types that have one in this process."""
    return {found for type in types if (found := find_class(type)) is not None}


def watched_classes(guard: Guard | Iterable[QueryCondition]) -> set[type[TypedMessage]]:
    """Return the classes, of those that this process has, whose messages a guard watches."""
    return known_classes([one.type for one in as_guard(guard).conditions])


def pause_if_waiting(state: tuple[int, int]) -> None:
    """Wait a moment where filling cannot begin, since older transactions are still open."""
    if state[0] == 0:
        time.sleep(FILL_PAUSE)


async def pause_if_waiting_async(state: tuple[int, int]) -> None:
    """Do the same in async code."""
    if state[0] == 0:
        await asyncio.sleep(FILL_PAUSE)
