"""What a schema says of `data` and `metadata`: their fields, read in PostgreSQL.

Every scalar is one expression of the query: PostgreSQL takes it out of the JSON and types it, and
Arrow puts the struct together again from its parts, so that no row passes through Python. What has
no column form, arrays and maps, comes as JSON and is decoded here.

A value is read from its text, so `"12"` reads as a number; a date or a time is in ISO 8601. A key
that is missing, or null, reads as null; text that does not read as its type is an error, or null if
the reader says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from psycopg import sql
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
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from penstock.errors import WrongColumns, WrongValue
from penstock.spark.read.json_values import json_array
from penstock.spark.read.read_plan import Build, Plan, Typed

TEXT = (StringType, VarcharType, CharType)

#: which type of PostgreSQL's the text of a value has to read as, and how it is sent from there
_POSTGRES: dict[type[DataType], tuple[str, str]] = {
    ByteType: ("penstock.tinyint", "({})::smallint"),
    ShortType: ("smallint", "{}"),
    IntegerType: ("integer", "{}"),
    LongType: ("bigint", "{}"),
    FloatType: ("real", "{}"),
    DoubleType: ("double precision", "{}"),
    BooleanType: ("boolean", "{}"),
    DateType: ("penstock.day", "({})::date"),
    TimestampType: ("penstock.instant", "(({})::timestamptz at time zone 'utc')"),
    TimestampNTZType: ("penstock.wall_time", "({})::timestamp"),
    DecimalType: ("numeric({},{})", "({})::text"),
}


@dataclass(frozen=True)
class Spot:
    """A place in `data` or `metadata`."""

    column: str
    path: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """How an error names it."""
        return ".".join((self.column, *self.path))

    @property
    def json(self) -> sql.Composed:
        """The value there, as JSON."""
        return self._at("->", "#>")

    @property
    def text(self) -> sql.Composed:
        """The value there, as text."""
        return self._at("->>", "#>>") if self.path else self.json + sql.SQL("::text")

    def inside(self, name: str) -> Spot:
        """Return the place of a field."""
        return replace(self, path=(*self.path, name))

    def _at(self, one: str, many: str) -> sql.Composed:
        root = sql.SQL("m.") + sql.Identifier(self.column)
        if not self.path:
            return root
        if len(self.path) == 1:
            return sql.SQL("({} {} {})").format(root, sql.SQL(one), self.path[0])
        return sql.SQL("({} {} {}::text[])").format(root, sql.SQL(many), list(self.path))


def value_at(plan: Plan, spot: Spot, kind: DataType, arrow: pa.DataType) -> Build:
    """Return how to read the value at a place as a type."""
    if isinstance(kind, StructType):
        return _struct(plan, spot, kind, arrow)
    if isinstance(kind, ArrayType | MapType):
        return _json(plan, spot, kind, arrow)
    if isinstance(kind, TEXT):
        return plan.as_read(spot.text, arrow)
    return _scalar(plan, spot, kind, arrow)


def refuse_not_null(name: str, kind: DataType) -> None:
    """Refuse a type that has no room for what a message lacks: Spark would fail on the null."""
    if isinstance(kind, StructType):
        never = [f"{name}.{one.name}" for one in kind.fields if not one.nullable]
        for one in kind.fields:
            refuse_not_null(f"{name}.{one.name}", one.dataType)
    elif isinstance(kind, ArrayType):
        never = [] if kind.containsNull else [f"an element of {name}"]
        refuse_not_null(name, kind.elementType)
    elif isinstance(kind, MapType):
        never = [] if kind.valueContainsNull else [f"a value of {name}"]
        refuse_not_null(name, kind.valueType)
    else:
        return
    if never:
        raise WrongColumns(f"{never[0]} is NOT NULL", "any message may lack it: leave that out")


def _struct(plan: Plan, spot: Spot, kind: StructType, arrow: pa.DataType) -> Build:
    """Read an object: each of its fields, and whether it is there at all."""
    found = sql.SQL("coalesce(jsonb_typeof({}), 'null')").format(spot.json)
    absent = plan.add(
        sql.SQL("case {} when 'object' then false when 'null' then true end").format(found)
    )
    wrong = sql.SQL("{} not in ('object', 'null')").format(found)
    plan.typed.append(Typed(spot.name, spot.text, "an object", wrong))
    children = [
        value_at(plan, spot.inside(one.name), one.dataType, child.type)
        for one, child in zip(kind.fields, arrow.fields, strict=True)
    ]

    def build(columns: Sequence[pa.Array]) -> pa.Array:
        mask = columns[absent]
        if mask.null_count and not plan.null_if_wrong:
            raise WrongValue(spot.name, None, "an object", None)
        parts = [child(columns) for child in children]
        return pa.StructArray.from_arrays(parts, fields=arrow.fields, mask=mask.fill_null(True))

    return build


def _json(plan: Plan, spot: Spot, kind: ArrayType | MapType, arrow: pa.DataType) -> Build:
    text = sql.SQL("({})::text").format(spot.json)
    plan.typed.append(Typed(spot.name, text, kind.simpleString()))
    number = plan.add(text)
    return lambda columns: json_array(columns[number], spot.name, kind, arrow, plan.null_if_wrong)


def _scalar(plan: Plan, spot: Spot, kind: DataType, arrow: pa.DataType) -> Build:
    reads_as, value = _expression(spot, kind)
    readable = sql.SQL("penstock.reads_as({}, {})").format(spot.text, reads_as)
    wrong = sql.SQL("not {}").format(readable)
    plan.typed.append(Typed(spot.name, spot.text, kind.simpleString(), wrong))
    if plan.null_if_wrong:
        value = sql.SQL("case when {} then {} end").format(readable, value)
    return plan.as_read(value, arrow)


def _expression(spot: Spot, kind: DataType) -> tuple[str, sql.Composed]:
    """Return what the text at a place has to read as, and the expression that reads it."""
    if isinstance(kind, BinaryType):
        return "base64", sql.SQL("decode({}, 'base64')").format(spot.text)
    if type(kind) not in _POSTGRES:
        raise WrongColumns(
            f"{spot.name} cannot be read as {kind.simpleString()}",
            "a field is text, a number, a truth value, a date, a time, binary, a struct, an array "
            "or a map",
        )
    reads_as, sent = _POSTGRES[type(kind)]
    if isinstance(kind, DecimalType):
        reads_as = reads_as.format(kind.precision, kind.scale)
    text = spot.text
    if isinstance(kind, DateType | TimestampType | TimestampNTZType):
        text = sql.SQL("penstock.iso_time({})").format(text)
    value = sql.SQL("({})::{}").format(text, sql.SQL(reads_as))
    return reads_as, sql.SQL(sent).format(value)
