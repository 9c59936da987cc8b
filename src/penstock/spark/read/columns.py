"""The columns of a message in Spark, and how PostgreSQL fills them.

A column is read as it is, or, for `data` and `metadata`, as the struct, array or map that the
user's schema says: see `typed_fields`.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from psycopg import sql
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from penstock.errors import ValidationError, WrongColumns
from penstock.spark.json_kinds import refuse_twice
from penstock.spark.read.id_texts import id_texts
from penstock.spark.read.read_plan import Build, Plan
from penstock.spark.read.typed_fields import TEXT, Spot, refuse_not_null, value_at

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
_JSON = ("data", "metadata")
_KINDS: dict[str, tuple[type[DataType], ...]] = {
    "position": (LongType,),
    "global_position": (LongType,),
    "time": (TimestampType, TimestampNTZType),
}


def default_schema(columns: Sequence[str] | None) -> StructType:
    """Return the schema of a message, or of some columns of it."""
    for name in columns or ():
        if columns and columns.count(name) > 1:
            raise ValidationError("columns", name, "named once")
        if name not in MESSAGE.fieldNames():
            raise ValidationError("columns", name, f"among {', '.join(MESSAGE.fieldNames())}")
    return StructType([MESSAGE[name] for name in columns or MESSAGE.fieldNames()])


def plan(schema: StructType, *, null_if_wrong: bool = False) -> Plan:
    """Return how to read the columns of a schema."""
    refuse_twice(schema)
    found = Plan(to_arrow_schema(schema, timezone="UTC"), null_if_wrong)
    for one, arrow in zip(schema.fields, found.schema, strict=True):
        found.builds.append(_column(found, one, arrow.type))
    return found


def _column(plan: Plan, one: StructField, arrow: pa.DataType) -> Build:
    if one.name not in MESSAGE.fieldNames():
        expected = f"columns of a message are {', '.join(MESSAGE.fieldNames())}"
        raise WrongColumns(f"there is no column {one.name}", expected)
    if one.name in _JSON and not one.nullable:
        raise WrongColumns(f"{one.name} is NOT NULL", "any message may lack it: leave that out")
    if one.name in _JSON and isinstance(one.dataType, StructType | ArrayType | MapType):
        refuse_not_null(one.name, one.dataType)
        return value_at(plan, Spot(one.name), one.dataType, arrow)
    _check(one)
    column = sql.SQL("m.") + sql.Identifier(one.name)
    if one.name == "id":
        number = plan.add(column)
        return lambda columns: id_texts(columns[number])
    return plan.as_read(column, arrow)


def _check(one: StructField) -> None:
    allowed = _KINDS.get(one.name, TEXT)
    if not isinstance(one.dataType, allowed):
        names = (
            "string" if allowed is TEXT else " or ".join(kind().simpleString() for kind in allowed)
        )
        raise WrongColumns(
            f"column {one.name} cannot be read as {one.dataType.simpleString()}",
            f"it is {names}" + (", a struct, an array or a map" if one.name in _JSON else ""),
        )
