"""Two databases that are called alike: a genuine Message DB, and one that Penstock installed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

#: a call that asks for the notices that the calls before it raised
NOTICES = "notices"


@dataclass(frozen=True)
class Refused:
    """The answer to a call that failed."""

    sqlstate: str | None
    message: str | None


#: the rows, or the command's tag if there are none to have, or the error
Answer = list[tuple[Any, ...]] | str | None | Refused


class Side:
    """One of the databases, and those who call it.

    A service calls as role message_store and sets no search path, as Message DB's clients do. Calls
    that begin with `other: ` come from a second service, with `owner: ` from the database's owner.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._callers: dict[str, psycopg.Connection[Any]] = {}
        self._notices: list[str | None] = []

    def begin_again(self) -> None:
        """Forget all messages, settings and open transactions."""
        self.close()
        self._callers = {
            caller: psycopg.connect(make_conninfo(self._url, user=role), autocommit=True)
            for caller, role in [
                ("service", "message_store"), ("other", "message_store"), ("owner", "postgres"),
            ]
        }  # fmt: skip
        self._notices.clear()
        for caller in self._callers.values():
            caller.add_notice_handler(lambda notice: self._notices.append(notice.message_primary))

    def empty(self) -> None:
        """Forget all messages."""
        self._callers["owner"].execute("truncate message_store.messages restart identity")

    def ask(self, call: str, arguments: Sequence[Any] = ()) -> Answer:
        """Make a call and return its answer."""
        if call == NOTICES:
            return [(notice,) for notice in self._notices]
        named = call.startswith(("other: ", "owner: "))
        caller, text = call.split(": ", 1) if named else ("service", call)
        try:
            cursor = self._callers[caller].execute(text.encode(), arguments or None)
        except psycopg.Error as error:
            return Refused(error.sqlstate, error.diag.message_primary)
        if cursor.description is None:
            return cursor.statusmessage
        return [tuple(map(_without_time, row)) for row in cursor.fetchall()]

    def close(self) -> None:
        """Close all connections."""
        for caller in self._callers.values():
            caller.close()


@dataclass(frozen=True)
class Sides:
    """Both databases."""

    genuine: Side
    ours: Side

    def ask(self, call: str, arguments: Sequence[Any] = ()) -> tuple[Answer, Answer]:
        """Make the same call on both."""
        return self.genuine.ask(call, arguments), self.ours.ask(call, arguments)

    def __iter__(self) -> Iterator[Side]:
        return iter((self.genuine, self.ours))


def _without_time(value: Any) -> Any:
    return "some time" if isinstance(value, datetime) else value
