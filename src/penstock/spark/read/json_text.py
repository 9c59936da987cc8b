"""Typed values from JSON texts by Arrow's own reader, where it reads what PostgreSQL would.

Structs of archived messages are filled by the task that reads the file. Arrow's JSON reader is
quick and strict: it takes a number for a number, a text for a text, and raises for anything else.
PostgreSQL reads more: `"12"` as a number, a number as a text, a time without seconds. So a batch is
read here only if all its values are of the plain kind, for which both agree. Otherwise the result
is None, and PostgreSQL itself reads the batch.

What is left to PostgreSQL: maps, binary values, and texts of dates and times that are not in the
usual form; a value that is not of its type; numbers beyond the range of their type, or too small
for it, which PostgreSQL refuses.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
from pyspark.sql import types

#: kinds of which Arrow reads a value as PostgreSQL does, or raises
_PLAIN = (
    types.StringType, types.BooleanType, types.ByteType, types.ShortType, types.IntegerType,
    types.LongType, types.DoubleType,
)  # fmt: skip
_DAY = "[12][0-9]{3}-[0-9]{2}-[0-9]{2}"
_TIME = f"{_DAY}[T ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]{{1,6}})?"
_ZONE = "(Z|[+-](0[0-9]|1[0-5]):?[0-5][0-9])"
#: a number with so many zeros may be too small for its type: PostgreSQL refuses it
_ZEROS = "0" * 37
#: decimals are read with more digits than this, and then have to fit
_DIGITS = 28
_FIELD = "value"


class _NotPlain(Exception):
    """A value that Arrow may read in another way than PostgreSQL, or not at all."""


def plain_values(texts: pa.Array, kind: types.DataType, arrow: pa.DataType) -> pa.Array | None:
    """Return a column of JSON texts as a column of that type; None if not all values are plain."""
    try:
        read_as = _read_as(kind, arrow)
        if pc.any(pc.match_substring(texts, _ZEROS)).as_py():
            return None
        return _converted(_parsed(texts, read_as), kind, arrow)
    except (_NotPlain, pa.ArrowException):
        return None


def _parsed(texts: pa.Array, read_as: pa.DataType) -> pa.Array:
    """Return the values of JSON texts, each as the field of an object on a line of its own."""
    if not len(texts):
        return pa.array([], read_as)
    filled = pc.fill_null(texts, "null")
    lines = pc.binary_join_element_wise(f'{{"{_FIELD}":', filled, "}\n", "")
    size = pc.sum(pc.binary_length(lines)).as_py()
    buffer = lines.buffers()[2].slice(0, size)  # the lines, one after the other
    options = pa.json.ParseOptions(
        explicit_schema=pa.schema({_FIELD: read_as}), unexpected_field_behavior="ignore"
    )
    reading = pa.json.ReadOptions(use_threads=False, block_size=size)
    found = pa.json.read_json(pa.BufferReader(buffer), reading, options)
    column = found.column(_FIELD).combine_chunks()
    if len(column) != len(texts):
        raise _NotPlain
    return column


def _read_as(kind: types.DataType, arrow: pa.DataType) -> pa.DataType:
    """Return the type that Arrow's reader is asked for, or raise if PostgreSQL has to read it."""
    if isinstance(kind, types.StructType):
        names = kind.fieldNames()
        if not names or len(set(names)) < len(names):
            raise _NotPlain
        parts = zip(names, kind.fields, arrow.fields, strict=True)
        return pa.struct([(name, _read_as(one.dataType, part.type)) for name, one, part in parts])
    if isinstance(kind, types.ArrayType):
        if not _is_plain(kind.elementType):
            raise _NotPlain
        return arrow
    if isinstance(kind, types.DateType | types.TimestampType | types.TimestampNTZType):
        return pa.string()
    if isinstance(kind, types.DecimalType) and kind.precision <= _DIGITS:
        return pa.decimal128(38, kind.scale)
    if isinstance(kind, (*_PLAIN, types.FloatType)):
        return arrow
    raise _NotPlain


def _is_plain(kind: types.DataType) -> bool:
    """Whether the elements of an array are read without a conversion of their own."""
    if isinstance(kind, types.ArrayType):
        return _is_plain(kind.elementType)
    if isinstance(kind, types.StructType):
        names = kind.fieldNames()
        is_distinct = bool(names) and len(set(names)) == len(names)
        return is_distinct and all(_is_plain(one.dataType) for one in kind.fields)
    return isinstance(kind, _PLAIN)


def _converted(column: Any, kind: types.DataType, arrow: pa.DataType) -> pa.Array:
    """Return what Arrow has read in the type of the frame, or raise if it is not plain."""
    if isinstance(kind, types.StructType):
        parts = [
            _converted(column.field(number), one.dataType, part.type)
            for number, (one, part) in enumerate(zip(kind.fields, arrow.fields, strict=True))
        ]
        return pa.StructArray.from_arrays(parts, fields=arrow.fields, mask=column.is_null())
    if isinstance(kind, types.DateType):
        return _of_form(column, _DAY).cast(arrow)
    if isinstance(kind, types.TimestampNTZType):
        return _of_form(column, _TIME).cast(arrow)
    if isinstance(kind, types.TimestampType):
        if pc.any(pc.match_substring_regex(column, f"{_ZONE}$")).as_py():
            return _of_form(column, _TIME + _ZONE).cast(arrow)
        return _of_form(column, _TIME).cast(pa.timestamp("us")).cast(arrow)  # in UTC
    if isinstance(kind, types.DecimalType):
        return column.cast(arrow)  # raises if a number has too many digits
    _refuse_infinite(column)
    return column


def _of_form(texts: Any, form: str) -> Any:
    if pc.any(pc.invert(pc.match_substring_regex(texts, f"^{form}$"))).as_py():
        raise _NotPlain
    return texts


def _refuse_infinite(column: Any) -> None:
    """Raise if a number is beyond the range of its type."""
    if pa.types.is_floating(column.type) and pc.any(pc.is_inf(column)).as_py():
        raise _NotPlain
    if pa.types.is_list(column.type):
        _refuse_infinite(column.flatten())
    if pa.types.is_struct(column.type):
        for part in column.flatten():
            _refuse_infinite(part)
