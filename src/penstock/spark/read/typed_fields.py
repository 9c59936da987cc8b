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
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StructType

from penstock.errors import WrongColumns, WrongValue
from penstock.spark.json_columns import type_parts
from penstock.spark.read.json_values import json_array
from penstock.spark.read.plan import Build, ReadPlan, TypedValue

TEXT = ("string", "varchar", "char")
_CAST, _TIME = "({text})::{type}", "penstock.iso_time({text})::{type}"
#: the PostgreSQL type that the text of a value has to read as, and the expression that is sent
_SCALARS: dict[str, tuple[str, str]] = {
    "byte": ("penstock.tinyint", f"{_CAST}::smallint"),
    "short": ("smallint", _CAST),
    "integer": ("integer", _CAST),
    "long": ("bigint", _CAST),
    "float": ("real", _CAST),
    "double": ("double precision", _CAST),
    "decimal": ("numeric", f"{_CAST}::text"),
    "boolean": ("boolean", _CAST),
    "date": ("penstock.day", f"{_TIME}::date"),
    "timestamp": ("penstock.instant", f"({_TIME}::timestamptz at time zone 'utc')"),
    "timestamp_ntz": ("penstock.wall_time", f"{_TIME}::timestamp"),
    "binary": ("base64", "decode({text}, 'base64')"),
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
        text = sql.SQL("({})::text").format(path.json)
        plan.typed.append(TypedValue(path.name, text, kind.simpleString()))
        number, null_if_wrong = plan.add(text), plan.null_if_wrong
        return lambda columns: json_array(columns[number], path.name, kind, arrow, null_if_wrong)
    if kind.typeName() in TEXT:
        return plan.as_read(path.text, arrow)
    return _scalar(plan, path, kind, arrow)


def refuse_not_null(name: str, kind: DataType) -> None:
    """Raise for a type that is NOT NULL somewhere: any message may lack the value."""
    for path, part in type_parts(name, kind):
        never: list[str] = []
        if isinstance(part, StructType):
            never = [f"{path}.{one.name}" for one in part.fields if not one.nullable]
        elif isinstance(part, ArrayType) and not part.containsNull:
            never = [f"an element of {path}"]
        elif isinstance(part, MapType) and not part.valueContainsNull:
            never = [f"a value of {path}"]
        if never:
            raise WrongColumns(f"{never[0]} is NOT NULL", "any message may lack it: leave that out")


def _struct(plan: ReadPlan, path: JsonPath, kind: StructType, arrow: pa.DataType) -> Build:
    """Read an object: each of its fields, and whether it is null."""
    found = sql.SQL("coalesce(jsonb_typeof({}), 'null')").format(path.json)
    is_absent = sql.SQL("case {} when 'object' then false when 'null' then true end")
    absent = plan.add(is_absent.format(found))
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


def _scalar(plan: ReadPlan, path: JsonPath, kind: DataType, arrow: pa.DataType) -> Build:
    if kind.typeName() not in _SCALARS:
        raise WrongColumns(
            f"{path.name} cannot be read as {kind.simpleString()}",
            "a field is text, a number, a boolean, a date, a time, binary, a struct, an array "
            "or a map",
        )
    type, expression = _SCALARS[kind.typeName()]
    if isinstance(kind, DecimalType):
        type += f"({kind.precision},{kind.scale})"
    value = sql.SQL(expression).format(text=path.text, type=sql.SQL(type))
    readable = sql.SQL("penstock.reads_as({}, {})").format(path.text, type)
    wrong = sql.SQL("not {}").format(readable)
    plan.typed.append(TypedValue(path.name, path.text, kind.simpleString(), wrong))
    if plan.null_if_wrong:
        value = sql.SQL("case when {} then {} end").format(readable, value)
    return plan.as_read(value, arrow)
