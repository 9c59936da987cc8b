"""An operation is a value: SQL, its arguments, and how to decode the rows.

Pure functions build operations, and a connection runs them. So behaviour is written once for
blocking and async code, in and out of transactions, on pooled connections and on the caller's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, LiteralString, TypeVar

import msgspec
from psycopg.sql import Composed

Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)
Row = tuple[Any, ...]


class Statement(msgspec.Struct, frozen=True):
    """One SQL statement and its arguments; None if the SQL contains its values as literals."""

    sql: LiteralString | Composed
    arguments: tuple[Any, ...] | None = ()


class Operation(msgspec.Struct, Generic[Result_co], frozen=True):
    """Statements to run in one transaction; the rows of the last are decoded into the result."""

    name: str
    statements: tuple[Statement, ...]
    decode: Callable[[list[Row]], Result_co]
    #: names and counts, for interceptors
    facts: Mapping[str, Any] = {}


def call(
    name: str,
    sql: LiteralString | Composed,
    arguments: tuple[Any, ...] | None,
    decode: Callable[[list[Row]], Result],
    **facts: Any,
) -> Operation[Result]:
    """Return an operation of one statement."""
    return Operation(name, (Statement(sql, arguments),), decode, facts)


def only_value(rows: list[Row]) -> Any:
    """Return the value of a result with one row and one column."""
    return rows[0][0]
