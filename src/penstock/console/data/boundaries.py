"""The boundary explorer: what a guard would see, and who is deciding there now."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.console.data.log import MessageRow
from penstock.message.conditions import QueryCondition
from penstock.store_async import AsyncStore


@dataclass(frozen=True, slots=True)
class Holder:
    """A session that holds, or waits for, a lock of the boundary."""

    pid: int
    application: str | None
    role: str | None
    state: str | None
    seconds: float | None
    statement: str | None
    #: `decides`: a guard; `writes`: a message that may match
    what: str
    waits: bool


@dataclass(frozen=True, slots=True)
class Boundary:
    """The messages that a guard with these conditions would see, newest first."""

    conditions: tuple[QueryCondition, ...]
    items: tuple[MessageRow, ...]
    next: str | None
    #: global positions of matching messages that are in the archive, of those looked at
    archived: tuple[int, ...]
    #: the guard's `low`: everything up to here is complete
    complete_to: int
    holders: tuple[Holder, ...]


def parse_conditions(text: str) -> tuple[QueryCondition, ...]:
    """Return the conditions that a text has, one for each line or semicolon.

    A line is a type, and attributes with values: `joined course=Algebra user=joe`. Values with
    spaces are in double quotes.
    """
    raise NotImplementedError


async def explore(
    store: AsyncStore,
    conditions: str | Iterable[QueryCondition],
    after: str | None = None,
    limit: int = 50,
) -> Boundary:
    """Return what a guard with these conditions would see, and who is deciding there now."""
    raise NotImplementedError
