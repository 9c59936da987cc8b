"""How to read a frame: the expressions of a query, and how their columns become Arrow columns.

A read that fails on a value does not say which message has it. `raise_wrong_value` searches for it
afterwards, with the conditions that the plan has collected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql
from psycopg.pq import TransactionStatus
from pyspark.sql.types import StructType

from penstock.database.operation import call
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
    #: the same in Spark's types
    fields: StructType
    null_if_wrong: bool
    expressions: list[sql.Composable] = field(default_factory=list)
    builds: list[Build] = field(default_factory=list)
    typed: list[TypedValue] = field(default_factory=list)

    def query(self, rows: sql.Composed, *more: sql.Composable) -> sql.Composed:
        """Return the query that reads rows of messages, and more expressions of each."""
        selected = sql.SQL(", ").join([*self.expressions, *more])
        return sql.SQL("select {} ").format(selected) + rows

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


def raise_wrong_value(
    connection: Connection, rows: sql.Composed, plan: ReadPlan, error: Exception
) -> NoReturn:
    """Raise for the value that does not read as its type; the error if that is not its cause."""
    if connection.info.transaction_status == TransactionStatus.INERROR:  # as on a replica
        connection.execute("rollback")
    for one in () if plan.null_if_wrong else plan.typed:
        if one.wrong is not None:
            condition = one.wrong
        elif isinstance(error, WrongValue) and error.field == one.name:
            condition = sql.SQL("{} = {}").format(one.text, error.value)
        else:
            continue
        query = sql.SQL("select m.global_position, {} {} and {} limit 1")
        first = call("first_wrong", query.format(one.text, rows, condition), None, list)
        for position, text in run(connection, first):
            raise WrongValue(one.name, text, one.expected, position) from None
    raise error
