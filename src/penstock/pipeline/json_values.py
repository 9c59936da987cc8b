"""Values that come as JSON text, arrays and maps, in the types of a Spark schema."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    FractionalType,
    IntegralType,
    MapType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from penstock.errors import WrongValue, shown

#: numbers keep all their digits until it is known what they are read as
_decoder = msgspec.json.Decoder(float_hook=Decimal)


def json_array(
    texts: pa.Array, name: str, kind: DataType, arrow: pa.DataType, null_if_wrong: bool
) -> pa.Array:
    """Return a column of JSON texts as a column of that type."""
    return pa.array(
        [
            None if text is None else _read(text, name, kind, null_if_wrong)
            for text in texts.to_pylist()
        ],
        type=arrow,
    )


def _read(text: str, name: str, kind: DataType, null_if_wrong: bool) -> Any:
    try:
        return value_of(_decoder.decode(text), kind)
    except (ValueError, TypeError, ArithmeticError):
        if null_if_wrong:
            return None
        raise WrongValue(name, text, kind.simpleString(), None) from None


def value_of(value: Any, kind: DataType) -> Any:
    """Return a decoded JSON value as Python's value for a Spark type."""
    if value is None:
        return None
    if isinstance(kind, ArrayType):
        return [value_of(one, kind.elementType) for one in _of(value, list)]
    if isinstance(kind, MapType):
        read = {
            value_of(k, kind.keyType): value_of(v, kind.valueType)
            for k, v in _of(value, dict).items()
        }
        return list(read.items())
    if isinstance(kind, StructType):
        found = _of(value, dict)
        return {one.name: value_of(found.get(one.name), one.dataType) for one in kind.fields}
    for spark_type, read_as in _SCALARS:
        if isinstance(kind, spark_type):
            return read_as(value)
    return value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()


def _of(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{shown(value)} is no {kind.__name__}")
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError("a truth value is no number")
    number = Decimal(value)
    if number != number.to_integral_value():
        raise ValueError(f"{number} is not whole")
    return int(number)


def _boolean(value: Any) -> bool:
    if value in (True, "true"):
        return True
    if value in (False, "false"):
        return False
    raise ValueError(f"{shown(value)} is neither true nor false")


def _instant(value: Any) -> datetime:
    read = datetime.fromisoformat(value)
    return read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)


_SCALARS: tuple[tuple[type[DataType], Callable[[Any], Any]], ...] = (
    (BooleanType, _boolean),
    (IntegralType, _whole),
    (DecimalType, Decimal),
    (FractionalType, float),
    (DateType, date.fromisoformat),
    (TimestampNTZType, datetime.fromisoformat),
    (TimestampType, _instant),
    (BinaryType, base64.b64decode),
)
