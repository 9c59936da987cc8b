"""An operation is a value: which SQL to call with which arguments, and how to read the answer.

Pure functions build operations, and a connection runs them; so behaviour is written once for
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
    """One SQL statement and its arguments; None if its values are in the SQL, as literals."""

    sql: LiteralString | Composed
    arguments: tuple[Any, ...] | None = ()


class Operation(msgspec.Struct, Generic[Result_co], frozen=True):
    """Statements to run in one transaction; the rows of the last are decoded into the result."""

    name: str
    statements: tuple[Statement, ...]
    decode: Callable[[list[Row]], Result_co]
    #: what it is about, for interceptors
    facts: Mapping[str, Any] = {}


def call(
    name: str,
    sql: LiteralString | Composed,
    arguments: tuple[Any, ...] | None,
    decode: Callable[[list[Row]], Result],
    **facts: Any,
) -> Operation[Result]:
    """Return the operation that is one statement."""
    return Operation(name, (Statement(sql, arguments),), decode, facts)


def only_value(rows: list[Row]) -> Any:
    """Decode an answer of one row and one column."""
    return rows[0][0]
