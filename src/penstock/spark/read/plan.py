"""How to read a frame: the expressions of a query, and how their columns become Arrow columns.

A read that fails on a value does not say which message has it. `find_wrong_value` searches for it
afterwards, with the conditions that the plan has collected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from penstock.database.operation import Operation, Row, call
from penstock.errors import WrongValue
from penstock.spark.connections import Connection, run

#: the errors that a value of the wrong type may cause
VALUE_ERRORS = (psycopg.DataError, psycopg.IntegrityError, pa.ArrowException, WrongValue)

Build = Callable[[Sequence[pa.Array]], pa.Array]


@dataclass(frozen=True)
class TypedValue:
    """A value inside `data` or `metadata` that has to be of a type."""

    name: str
    text: sql.Composable
    expected: str
    #: the condition for a wrong one; None: SQL cannot tell, only decoding its JSON can
    wrong: sql.Composed | None = None


@dataclass
class ReadPlan:
    """The expressions of a query, and how their columns become the columns of a frame."""

    schema: pa.Schema
    null_if_wrong: bool
    expressions: list[sql.Composable] = field(default_factory=list)
    builds: list[Build] = field(default_factory=list)
    typed: list[TypedValue] = field(default_factory=list)

    def query(self, rows: sql.Composed) -> sql.Composed:
        """Return the query that reads rows of messages."""
        return sql.SQL("select {} ").format(sql.SQL(", ").join(self.expressions)) + rows

    def batch(self, columns: Sequence[pa.Array]) -> pa.RecordBatch:
        """Return a batch of the frame from the columns of the query."""
        built = [build(columns) for build in self.builds]
        return pa.RecordBatch.from_arrays(built, schema=self.schema)

    def add(self, expression: sql.Composable) -> int:
        """Select one more expression and return its number."""
        self.expressions.append(expression)
        return len(self.expressions) - 1

    def as_read(self, expression: sql.Composable, arrow: pa.DataType) -> Build:
        """Select an expression, and return its column in Spark's type."""
        number = self.add(expression)

        def build(columns: Sequence[pa.Array]) -> pa.Array:
            column: Any = columns[number]
            return column if column.type == arrow else pc.cast(column, arrow)

        return build


def find_wrong_value(
    connection: Connection, rows: sql.Composed, plan: ReadPlan, error: Exception
) -> WrongValue | None:
    """Return the value that does not read as its type, if that is what caused the error."""
    for one in () if plan.null_if_wrong else plan.typed:
        if found := run(connection, first_wrong(one, rows, _condition(one, error))):
            return found
    return None


def first_wrong(
    value: TypedValue, rows: sql.Composed, condition: sql.Composable
) -> Operation[WrongValue | None]:
    """Find the first message among these rows whose value meets the condition."""

    def decode(found: list[Row]) -> WrongValue | None:
        for position, text in found:
            return WrongValue(value.name, text, value.expected, position)
        return None

    query = sql.SQL("select m.global_position, {} {} and {} limit 1")
    return call("first_wrong", query.format(value.text, rows, condition), None, decode)


def _condition(value: TypedValue, error: Exception) -> sql.Composable:
    """Return the condition for the message that has the wrong value."""
    if value.wrong is not None:
        return value.wrong
    if isinstance(error, WrongValue) and error.field == value.name:
        return sql.SQL("{} = {}").format(value.text, error.value)
    return sql.SQL("false")
