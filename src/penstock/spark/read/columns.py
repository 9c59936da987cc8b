"""The columns of a message in Spark, and how PostgreSQL fills them.

A column is read as it is stored, or, for `data` and `metadata`, as the struct, array or map of the
user's schema: see `typed_fields`.
"""

from __future__ import annotations

from binascii import hexlify
from collections.abc import Sequence

import numpy as np
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
from penstock.spark.json_columns import refuse_duplicate_columns
from penstock.spark.read.plan import Build, ReadPlan
from penstock.spark.read.typed_fields import TEXT, JsonPath, read_value, refuse_not_null

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
_TYPES: dict[str, tuple[type[DataType], ...]] = {
    "position": (LongType,),
    "global_position": (LongType,),
    "time": (TimestampType, TimestampNTZType),
}
_HYPHEN = ord("-")
#: where the hexadecimal digits of a UUID go, between the hyphens
_UUID_GROUPS = [
    (slice(0, 8), slice(0, 8)),
    (slice(9, 13), slice(8, 12)),
    (slice(14, 18), slice(12, 16)),
    (slice(19, 23), slice(16, 20)),
    (slice(24, 36), slice(20, 32)),
]


def default_schema(columns: Sequence[str] | None) -> StructType:
    """Return the schema of a message, or of some columns of it."""
    for name in columns or ():
        if columns and columns.count(name) > 1:
            raise ValidationError("columns", name, "named once")
        if name not in MESSAGE.fieldNames():
            raise ValidationError("columns", name, f"among {', '.join(MESSAGE.fieldNames())}")
    return StructType([MESSAGE[name] for name in columns or MESSAGE.fieldNames()])


def read_plan(schema: StructType, *, null_if_wrong: bool = False) -> ReadPlan:
    """Return how to read the columns of a schema, or raise if one cannot be read."""
    refuse_duplicate_columns(schema)
    plan = ReadPlan(to_arrow_schema(schema, timezone="UTC"), null_if_wrong)
    for one, arrow in zip(schema.fields, plan.schema, strict=True):
        plan.builds.append(_column(plan, one, arrow.type))
    return plan


def uuid_texts(ids: pa.Array) -> pa.StringArray:
    """Return UUIDs, each given as its sixteen bytes, as text.

    Many at a time: PostgreSQL would need a tenth of the whole read to format them.
    """
    raw_ids = getattr(ids, "storage", ids)  # the Arrow driver wraps them in an extension type
    count, first = len(raw_ids), raw_ids.offset * 16
    raw = memoryview(raw_ids.buffers()[-1])[first : first + count * 16]
    digits = np.frombuffer(hexlify(raw), np.uint8).reshape(count, 32)
    texts = np.full((count, 36), _HYPHEN, np.uint8)
    for place, group in _UUID_GROUPS:
        texts[:, place] = digits[:, group]
    offsets = np.arange(0, 36 * count + 1, 36, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(texts))


def _column(plan: ReadPlan, one: StructField, arrow: pa.DataType) -> Build:
    if one.name not in MESSAGE.fieldNames():
        expected = f"columns of a message are {', '.join(MESSAGE.fieldNames())}"
        raise WrongColumns(f"there is no column {one.name}", expected)
    if one.name in _JSON and not one.nullable:
        raise WrongColumns(f"{one.name} is NOT NULL", "any message may lack it: leave that out")
    if one.name in _JSON and isinstance(one.dataType, StructType | ArrayType | MapType):
        refuse_not_null(one.name, one.dataType)
        return read_value(plan, JsonPath(one.name), one.dataType, arrow)
    _check_type(one)
    column = sql.SQL("m.") + sql.Identifier(one.name)
    if one.name == "id":
        number = plan.add(column)
        return lambda columns: uuid_texts(columns[number])
    return plan.as_read(column, arrow)


def _check_type(one: StructField) -> None:
    allowed = _TYPES.get(one.name, TEXT)
    if not isinstance(one.dataType, allowed):
        names = (
            "string" if allowed is TEXT else " or ".join(kind().simpleString() for kind in allowed)
        )
        raise WrongColumns(
            f"column {one.name} cannot be read as {one.dataType.simpleString()}",
            f"it is {names}" + (", a struct, an array or a map" if one.name in _JSON else ""),
        )
