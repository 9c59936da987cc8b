"""The fields of `data` and `metadata` that a schema names, extracted by PostgreSQL.

Every scalar is one expression of the query: PostgreSQL extracts it from the JSON and casts it, and
Arrow assembles the struct from its columns, so no row passes through Python. Arrays and maps have
no column form; they arrive as JSON and are decoded by `json_values`.

A value is read from its text, so `"12"` reads as a number. Dates and times are in ISO 8601. A key
that is missing, or null, reads as null. Text that does not read as its type is an error, or null
with `onWrongType="null"`.
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
from penstock.spark.read.plan import Build, ReadPlan, TypedValue

TEXT = (StringType, VarcharType, CharType)

#: the PostgreSQL type that the text of a value is cast to, and the expression that is sent
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
class JsonPath:
    """The path of a value in `data` or `metadata`."""

    column: str
    keys: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The path in an error message."""
        return ".".join((self.column, *self.keys))

    @property
    def json(self) -> sql.Composed:
        """The expression for the value, as JSON."""
        return self._at("->", "#>")

    @property
    def text(self) -> sql.Composed:
        """The expression for the value, as text."""
        return self._at("->>", "#>>") if self.keys else self.json + sql.SQL("::text")

    def inside(self, name: str) -> JsonPath:
        """Return the path of a field of this value."""
        return replace(self, keys=(*self.keys, name))

    def _at(self, one: str, many: str) -> sql.Composed:
        root = sql.SQL("m.") + sql.Identifier(self.column)
        if not self.keys:
            return root
        if len(self.keys) == 1:
            return sql.SQL("({} {} {})").format(root, sql.SQL(one), self.keys[0])
        return sql.SQL("({} {} {}::text[])").format(root, sql.SQL(many), list(self.keys))


def read_value(plan: ReadPlan, path: JsonPath, kind: DataType, arrow: pa.DataType) -> Build:
    """Return how to read the value at a path as a type."""
    if isinstance(kind, StructType):
        return _struct(plan, path, kind, arrow)
    if isinstance(kind, ArrayType | MapType):
        return _json(plan, path, kind, arrow)
    if isinstance(kind, TEXT):
        return plan.as_read(path.text, arrow)
    return _scalar(plan, path, kind, arrow)


def refuse_not_null(name: str, kind: DataType) -> None:
    """Raise for a type that is NOT NULL somewhere: any message may lack the value."""
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


def _struct(plan: ReadPlan, path: JsonPath, kind: StructType, arrow: pa.DataType) -> Build:
    """Read an object: each of its fields, and whether it is null."""
    found = sql.SQL("coalesce(jsonb_typeof({}), 'null')").format(path.json)
    absent = plan.add(
        sql.SQL("case {} when 'object' then false when 'null' then true end").format(found)
    )
    wrong = sql.SQL("{} not in ('object', 'null')").format(found)
    plan.typed.append(TypedValue(path.name, path.text, "an object", wrong))
    children = [
        read_value(plan, path.inside(one.name), one.dataType, child.type)
        for one, child in zip(kind.fields, arrow.fields, strict=True)
    ]

    def build(columns: Sequence[pa.Array]) -> pa.Array:
        mask = columns[absent]
        if mask.null_count and not plan.null_if_wrong:
            raise WrongValue(path.name, None, "an object", None)
        parts = [child(columns) for child in children]
        return pa.StructArray.from_arrays(parts, fields=arrow.fields, mask=mask.fill_null(True))

    return build


def _json(plan: ReadPlan, path: JsonPath, kind: ArrayType | MapType, arrow: pa.DataType) -> Build:
    text = sql.SQL("({})::text").format(path.json)
    plan.typed.append(TypedValue(path.name, text, kind.simpleString()))
    number = plan.add(text)
    return lambda columns: json_array(columns[number], path.name, kind, arrow, plan.null_if_wrong)


def _scalar(plan: ReadPlan, path: JsonPath, kind: DataType, arrow: pa.DataType) -> Build:
    reads_as, value = _expression(path, kind)
    readable = sql.SQL("penstock.reads_as({}, {})").format(path.text, reads_as)
    wrong = sql.SQL("not {}").format(readable)
    plan.typed.append(TypedValue(path.name, path.text, kind.simpleString(), wrong))
    if plan.null_if_wrong:
        value = sql.SQL("case when {} then {} end").format(readable, value)
    return plan.as_read(value, arrow)


def _expression(path: JsonPath, kind: DataType) -> tuple[str, sql.Composed]:
    """Return the PostgreSQL type of a value, and the expression that reads it."""
    if isinstance(kind, BinaryType):
        return "base64", sql.SQL("decode({}, 'base64')").format(path.text)
    if type(kind) not in _POSTGRES:
        raise WrongColumns(
            f"{path.name} cannot be read as {kind.simpleString()}",
            "a field is text, a number, a boolean, a date, a time, binary, a struct, an array "
            "or a map",
        )
    reads_as, sent = _POSTGRES[type(kind)]
    if isinstance(kind, DecimalType):
        reads_as = reads_as.format(kind.precision, kind.scale)
    text = path.text
    if isinstance(kind, DateType | TimestampType | TimestampNTZType):
        text = sql.SQL("penstock.iso_time({})").format(text)
    value = sql.SQL("({})::{}").format(text, sql.SQL(reads_as))
    return reads_as, sql.SQL(sent).format(value)
