"""Pages of lists, counts that end at a limit, and values that are cut to be shown."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, LiteralString, TypeVar
from uuid import UUID

import msgspec
import msgspec.structs

from penstock.database.operation import Operation, Row, Statement, call
from penstock.errors import ValidationError
from penstock.log.context import is_whole

Item = TypeVar("Item")
Found = TypeVar("Found")
Result = TypeVar("Result")

#: items of a page
MOST = 200
#: a count goes no further
COUNT_UP_TO = 1_000
#: rows that are looked at where no index finds what is asked for
LOOK_AT = 5_000
#: of what is shown of one message
MOST_VALUES = 2_000
MOST_IN_ONE = 500  # of one list or object
MOST_TEXT = 100_000
LONGEST_TEXT = 2_000
MOST_DEPTH = 50

#: for each statement: it ends after 5 seconds, and uses indexes even where there are no statistics
_BOUNDS = Statement(
    "select set_config('statement_timeout', '5000', true), set_config('jit', 'off', true),"
    " set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true)",
    (),
)


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """Some items of a list, and where the next page begins."""

    items: tuple[Item, ...]
    #: pass it as `after`; None: this is the last page. A page may have few items and a next one
    next: str | None = None


@dataclass(frozen=True, slots=True)
class Count:
    """A number that was counted up to a limit: `1,000` or, if there are more, `1,000+`."""

    value: int
    at_least: bool = False

    def __str__(self) -> str:
        return f"{self.value:,}{'+' if self.at_least else ''}"


@dataclass(frozen=True, slots=True)
class Shown:
    """A value to show, and what was left out of it."""

    #: as JSON has it; texts, lists and objects end early if `cut`
    value: Any
    #: of the whole, in bytes: as JSON or, if it was not read, as it is stored
    size: int
    cut: bool = False


def query(
    name: str,
    sql: LiteralString,
    arguments: tuple[Any, ...] | Mapping[str, Any],
    decode: Callable[[list[Row]], Result],
) -> Operation[Result]:
    """Return a read of the console's: it uses indexes, and has five seconds."""
    return bounded(call(name, sql, arguments, decode))


def bounded(operation: Operation[Result]) -> Operation[Result]:
    """Return the same read, with five seconds for each statement."""
    return msgspec.structs.replace(operation, statements=(_BOUNDS, *operation.statements))


def check_page(limit: int, most: int = MOST) -> int:
    """Return a checked number of items."""
    if not is_whole(limit) or not 1 <= limit <= most:
        raise ValidationError("limit", limit, f"from 1 to {most}")
    return limit


def page(
    rows: Sequence[Found],
    limit: int,
    item: Callable[[Found], Item],
    key: Callable[[Found], Sequence[Any]],
) -> Page[Item]:
    """Return the first `limit` of what was found, of which one more was read, as a page."""
    shown = rows[:limit]
    end = cursor(*key(shown[-1])) if len(rows) > limit else None
    return Page(tuple(item(row) for row in shown), end)


def cursor(*key: Any) -> str:
    """Return the text that names a place in a list."""
    return base64.urlsafe_b64encode(msgspec.json.encode(key)).decode().rstrip("=")


def place(after: str | None, *types: Any) -> tuple[Any, ...] | None:
    """Return the place that a cursor names, as values of these types; None for the beginning."""
    if after is None:
        return None
    try:
        padded = after + "=" * (-len(after) % 4)
        found = base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True)
        return msgspec.json.decode(found, type=tuple[types])  # type: ignore[valid-type]
    except (AttributeError, ValueError, binascii.Error, msgspec.MsgspecError):
        expected = "the `next` of a page of the same list"
        raise ValidationError("after", after, expected) from None


def counted(value: int, most: int = COUNT_UP_TO) -> Count:
    """Return a count that ended at `most`."""
    return Count(value, value >= most)


def as_shown(value: Any, size: int | None = None, most: int = MOST_VALUES) -> Shown:
    """Return a value to show: at most so many values of it, and long texts cut."""
    budget = _Budget(most)
    kept = budget.cut_to(value, 0)
    whole = len(msgspec.json.encode(value, enc_hook=str)) if size is None else size
    return Shown(kept, whole, budget.cut)


class _Budget:
    """How many values may still be shown, and whether some were left out."""

    def __init__(self, most: int) -> None:
        self.left = most
        self.text_left = MOST_TEXT
        self.cut = False

    def cut_to(self, value: Any, depth: int) -> Any:
        self.left -= 1
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, bytes):
            return self._text(value.hex())
        if isinstance(value, dict | list | tuple) and depth >= MOST_DEPTH:
            self.cut = True
            return "…"
        if isinstance(value, dict):
            return {
                self._text(name): self.cut_to(one, depth + 1)
                for number, (name, one) in enumerate(value.items())
                if self._has_room(number)
            }
        if isinstance(value, list | tuple):
            return [
                self.cut_to(one, depth + 1)
                for number, one in enumerate(value)
                if self._has_room(number)
            ]
        return str(value) if isinstance(value, UUID | datetime) else value

    def _has_room(self, number: int) -> bool:
        has_room = self.left > 0 and self.text_left > 0 and number < MOST_IN_ONE
        self.cut |= not has_room
        return has_room

    def _text(self, text: str) -> str:
        most = min(LONGEST_TEXT, max(self.text_left, 0))
        self.text_left -= min(len(text), most)
        if len(text) <= most:
            return text
        self.cut = True
        return text[:most] + "…"
