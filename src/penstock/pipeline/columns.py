"""The columns of a message in Spark, and how PostgreSQL fills them.

A column is read as it is, or, for `data` and `metadata`, as the struct that the user's schema
says. Then every scalar in it is one expression of the query: PostgreSQL takes it out of the JSON
and types it, and Arrow puts the struct together again from its parts, so that no row passes
through Python. What has no column form, arrays and maps, comes as JSON and is decoded here.

A value is read from its text, so `"12"` reads as a number. A key that is missing, or null, reads as
null; text that does not read as its type is an error, or null if the reader says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from penstock.errors import ValidationError, WrongColumns
from penstock.pipeline.json_values import json_array

MESSAGE = StructType(
    [
        StructField("id", StringType()),
        StructField("stream_name", StringType()),
        StructField("type", StringType()),
        StructField("position", LongType()),
        StructField("global_position", LongType()),
        StructField("data", StringType()),
        StructField("metadata", StringType()),
        StructField("time", TimestampType()),
    ]
)

#: which type of PostgreSQL's the text of a value has to read as
_POSTGRES: dict[type[DataType], str] = {
    ByteType: "smallint",
    ShortType: "smallint",
    IntegerType: "integer",
    LongType: "bigint",
    FloatType: "real",
    DoubleType: "double precision",
    BooleanType: "boolean",
    DateType: "date",
    TimestampType: "timestamptz",
    TimestampNTZType: "timestamp",
}
_TEXT = (StringType, VarcharType, CharType)

Build = Callable[[Sequence[pa.Array]], pa.Array]


@dataclass(frozen=True)
class Typed:
    """A scalar inside `data` or `metadata`: where it is and what its text has to read as."""

    name: str
    text: sql.Composed
    reads_as: str


@dataclass
class Plan:
    """The expressions of a query, and how their columns become the columns of a frame."""

    schema: pa.Schema
    null_if_wrong: bool
    expressions: list[sql.Composed] = field(default_factory=list)
    builds: list[Build] = field(default_factory=list)
    typed: list[Typed] = field(default_factory=list)

    def select(self) -> sql.Composed:
        """Return the list of expressions to select."""
        return sql.SQL(", ").join(self.expressions)

    def batch(self, read: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch of the frame from a batch of the query."""
        columns = read.columns
        built = [build(columns) for build in self.builds]
        return pa.RecordBatch.from_arrays(built, schema=self.schema)

    def add(self, expression: sql.Composed) -> int:
        """Select one more expression and return its number."""
        self.expressions.append(expression)
        return len(self.expressions) - 1


def default_schema(columns: Sequence[str] | None) -> StructType:
    """Return the schema of a message, or of some columns of it."""
    for name in columns or ():
        if name not in MESSAGE.fieldNames():
            raise ValidationError("columns", name, f"among {', '.join(MESSAGE.fieldNames())}")
    return StructType([MESSAGE[name] for name in columns or MESSAGE.fieldNames()])


def plan(schema: StructType, *, null_if_wrong: bool = False) -> Plan:
    """Return how to read the columns of a schema."""
    found = Plan(to_arrow_schema(schema, timezone="UTC"), null_if_wrong)
    for one, arrow in zip(schema.fields, found.schema, strict=True):
        found.builds.append(_column(found, one, arrow.type))
    return found


def _column(plan: Plan, one: StructField, arrow: pa.DataType) -> Build:
    kind = one.dataType
    column = sql.SQL("m.") + sql.Identifier(one.name)
    if one.name not in MESSAGE.fieldNames():
        expected = f"columns of a message are {', '.join(MESSAGE.fieldNames())}"
        raise WrongColumns(f"there is no column {one.name}", expected)
    if one.name in ("data", "metadata"):
        if isinstance(kind, StructType):
            return _struct(plan, one.name, column, (), kind, arrow)
        if isinstance(kind, MapType | ArrayType):
            return _json(plan, one.name, column, kind, arrow)
        return _plain(plan, one, column + sql.SQL("::text"), _TEXT, arrow)
    if one.name == "id":
        return _plain(plan, one, column + sql.SQL("::text"), _TEXT, arrow)
    if one.name == "time":
        return _plain(plan, one, column, (TimestampType, TimestampNTZType), arrow)
    wanted = (LongType,) if one.name.endswith("position") else _TEXT
    return _plain(plan, one, column, wanted, arrow)


def _plain(
    plan: Plan,
    one: StructField,
    expression: sql.Composed,
    allowed: tuple[type[DataType], ...],
    arrow: pa.DataType,
) -> Build:
    if not isinstance(one.dataType, allowed):
        names = " or ".join(kind.typeName() for kind in allowed[:2])
        raise WrongColumns(
            f"column {one.name} cannot be read as {one.dataType.simpleString()}",
            f"it is {names}" + (", or a struct" if one.name in ("data", "metadata") else ""),
        )
    return _as(plan.add(expression), arrow)


def _struct(
    plan: Plan,
    name: str,
    root: sql.Composed,
    path: tuple[str, ...],
    kind: StructType,
    arrow: pa.DataType,
) -> Build:
    """Read an object: each of its fields, and whether it is there at all."""
    here = _at(root, path, "->", "#>")
    absent = plan.add(sql.SQL("(jsonb_typeof({}) is distinct from 'object')").format(here))
    if path:
        plan.typed.append(Typed(name, here, "object"))
    children = [
        _inside(plan, f"{name}.{one.name}", root, (*path, one.name), one.dataType, child.type)
        for one, child in zip(kind.fields, arrow.fields, strict=True)
    ]

    def build(columns: Sequence[pa.Array]) -> pa.Array:
        parts = [child(columns) for child in children]
        return pa.StructArray.from_arrays(parts, fields=arrow.fields, mask=columns[absent])

    return build


def _inside(
    plan: Plan,
    name: str,
    root: sql.Composed,
    path: tuple[str, ...],
    kind: DataType,
    arrow: pa.DataType,
) -> Build:
    if isinstance(kind, StructType):
        return _struct(plan, name, root, path, kind, arrow)
    if isinstance(kind, ArrayType | MapType):
        return _json(plan, name, _at(root, path, "->", "#>"), kind, arrow)
    text = _at(root, path, "->>", "#>>")
    if isinstance(kind, _TEXT):
        return _as(plan.add(text), arrow)
    if isinstance(kind, BinaryType):
        return _as(plan.add(sql.SQL("decode({}, 'base64')").format(text)), arrow)
    return _as(plan.add(_typed(plan, name, text, kind)), arrow)


def _typed(plan: Plan, name: str, text: sql.Composed, kind: DataType) -> sql.Composed:
    reads_as = _POSTGRES.get(type(kind))
    if isinstance(kind, DecimalType):
        reads_as = f"numeric({kind.precision},{kind.scale})"
    if reads_as is None:
        raise WrongColumns(
            f"{name} cannot be read as {kind.simpleString()}",
            "a field is text, a number, a truth value, a date, a time, binary, a struct, an array "
            "or a map",
        )
    plan.typed.append(Typed(name, text, reads_as))
    value = sql.SQL("({})::{}").format(text, sql.SQL(reads_as))  # type: ignore[arg-type]
    if isinstance(kind, TimestampType):
        value = sql.SQL("({} at time zone 'utc')").format(value)
    if isinstance(kind, DecimalType):
        value = sql.SQL("({})::text").format(value)
    if plan.null_if_wrong:
        value = sql.SQL("case when penstock.reads_as({}, {}) then {} end").format(
            text, reads_as, value
        )
    return value


def _json(
    plan: Plan, name: str, value: sql.Composed, kind: ArrayType | MapType, arrow: pa.DataType
) -> Build:
    number = plan.add(sql.SQL("({})::text").format(value))
    return lambda columns: json_array(columns[number], name, kind, arrow, plan.null_if_wrong)


def _at(root: sql.Composed, path: tuple[str, ...], one: str, many: str) -> sql.Composed:
    """Return the expression for the value at a path."""
    if not path:
        return root
    if len(path) == 1:
        return sql.SQL("({} {} {})").format(root, sql.SQL(one), path[0])  # type: ignore[arg-type]
    return sql.SQL("({} {} {}::text[])").format(root, sql.SQL(many), list(path))  # type: ignore[arg-type]


def _as(number: int, arrow: pa.DataType) -> Build:
    """Return a column as it was read, in Spark's type."""

    def build(columns: Sequence[pa.Array]) -> pa.Array:
        column: Any = columns[number]
        return column if column.type == arrow else pc.cast(column, arrow)

    return build
