"""A plan of a read: the expressions of a query, and how their columns become those of a frame."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

Build = Callable[[Sequence[pa.Array]], pa.Array]


@dataclass(frozen=True)
class Typed:
    """A value inside `data` or `metadata` that has to be of a type."""

    name: str
    text: sql.Composable
    expected: str
    #: the condition for a wrong one; None: only who decodes its JSON can tell
    wrong: sql.Composed | None = None


@dataclass
class Plan:
    """The expressions of a query, and how their columns become the columns of a frame."""

    schema: pa.Schema
    null_if_wrong: bool
    expressions: list[sql.Composable] = field(default_factory=list)
    builds: list[Build] = field(default_factory=list)
    typed: list[Typed] = field(default_factory=list)

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
