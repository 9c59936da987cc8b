"""The columns of a message in Spark, and how PostgreSQL fills them.

A column is read as it is stored, or, for `data` and `metadata`, as the struct, array or map of the
user's schema: see `typed_fields`.
"""

from __future__ import annotations

from binascii import hexlify
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
from psycopg import sql
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, MapType, StructField, StructType

from penstock.errors import ValidationError, WrongColumns
from penstock.spark.json_columns import refuse_duplicate_columns
from penstock.spark.read.plan import Build, ReadPlan
from penstock.spark.read.typed_fields import TEXT, JsonPath, read_value, refuse_not_null

MESSAGE = (
    StructType()
    .add("id", "string")
    .add("stream_name", "string")
    .add("type", "string")
    .add("position", "long")
    .add("global_position", "long")
    .add("data", "string")
    .add("metadata", "string")
    .add("time", "timestamp")
)
_JSON = ("data", "metadata")
#: of the hexadecimal digits of a UUID; hyphens go between the groups
_UUID_GROUPS = (0, 8, 12, 16, 20, 32)


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
    plan = ReadPlan(to_arrow_schema(schema, timezone="UTC"), schema, null_if_wrong)
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
    texts = np.full((count, 36), ord("-"), np.uint8)
    for hyphens, (start, end) in enumerate(pairwise(_UUID_GROUPS)):
        texts[:, start + hyphens : end + hyphens] = digits[:, start:end]
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
    stored, given = MESSAGE[one.name].dataType.simpleString(), one.dataType.simpleString()
    allowed = ["timestamp", "timestamp_ntz"] if stored == "timestamp" else [stored]
    if ("string" if one.dataType.typeName() in TEXT else given) not in allowed:
        raise WrongColumns(
            f"column {one.name} cannot be read as {given}",
            f"it is {' or '.join(allowed)}"
            + (", a struct, an array or a map" if one.name in _JSON else ""),
        )
