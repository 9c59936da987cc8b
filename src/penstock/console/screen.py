"""A screen: an address, what it reads, and the template that shows it.

The same values are shown as HTML at `path` and as JSON at `/api` + `path`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from starlette.datastructures import ImmutableMultiDict

from penstock.errors import ValidationError
from penstock.message import as_uuid

if TYPE_CHECKING:
    from penstock.console.live import Live
    from penstock.console.plain import Plain
    from penstock.store_async import AsyncStore

#: rows of a page of a list
PAGE = 50
_MOST = 2**63 - 1


@dataclass(frozen=True)
class Ask:
    """What a viewer asks a screen for.

    Names are in the query, not in the path: they can have any characters, such as a slash.
    """

    store: AsyncStore
    live: Live
    plain: Plain
    query: ImmutableMultiDict[str, Any]
    #: `Pipeline`s that the application has given
    pipelines: tuple[Any, ...] = ()

    def text(self, name: str, default: str | None = None) -> str | None:
        """Return a parameter, or `default` if it is missing or empty."""
        return (self.query.get(name) or "").strip() or default

    def need(self, name: str) -> str:
        """Return a parameter that must be there."""
        found = self.text(name)
        if found is None:
            raise ValidationError(name, None, "a value")
        return found

    def texts(self, name: str) -> list[str]:
        """Return every value of a parameter that is there several times."""
        return [one.strip() for one in self.query.getlist(name) if one.strip()]

    def whole(self, name: str, default: int | None = None) -> int | None:
        """Return a parameter as a whole number, such as a position."""
        found = self.text(name)
        return default if found is None else as_whole(name, found)

    def limit(self) -> int:
        """Return how many rows a page of the list has: `limit`, at most 200."""
        return max(1, min(self.whole("limit", PAGE) or PAGE, 200))

    def uuid(self, name: str) -> UUID:
        """Return a parameter as an id."""
        return as_uuid(self.need(name))

    def moment(self, name: str) -> datetime | None:
        """Return a parameter as a time; without a zone it is UTC."""
        found = self.text(name)
        if found is None:
            return None
        try:
            moment = datetime.fromisoformat(found)
        except ValueError:
            expected = "a time such as 2026-01-31T12:00:00Z"
            raise ValidationError(name, found, expected) from None
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def as_whole(name: str, text: str) -> int:
    """Return a text as a whole number that PostgreSQL can store."""
    digits = text.replace(",", "").replace("_", "")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 19 or int(digits) > _MOST:
        raise ValidationError(name, text, "a whole number, 0 or more")
    return int(digits)


Read = Callable[[Ask], Awaitable[Mapping[str, Any]]]


@dataclass(frozen=True)
class Screen:
    """One address of the console."""

    path: str
    #: its entry in the navigation
    section: str
    title: str
    template: str
    read: Read
    #: what it shows, for the list under `/api/`
    about: str
    #: its parameters, for the list under `/api/`
    parameters: Mapping[str, str] = field(default_factory=dict)
    #: whether the template has a block `live` that is pushed when it changes
    live: bool = True

    @property
    def api(self) -> str:
        """The address of the same values as JSON."""
        return "/api/overview" if self.path == "/" else f"/api{self.path}"
