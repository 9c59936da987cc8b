"""Arrays and maps, which arrive as JSON text, in the types of a Spark schema.

A scalar inside them is read from its text, as PostgreSQL reads a field of its own.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from penstock.errors import WrongValue

#: numbers keep all their digits until they are converted to their type
_decoder = msgspec.json.Decoder(float_hook=Decimal)
_encoder = msgspec.json.Encoder(decimal_format="number")
_TRUE = {"t", "tr", "tru", "true", "y", "ye", "yes", "on", "1"}
_FALSE = {"f", "fa", "fal", "fals", "false", "n", "no", "of", "off", "0"}
#: the same pattern as in `penstock.is_iso_time`
_ISO_TIME = re.compile(
    "[0-9]{4}-[0-9]{2}-[0-9]{2}"
    "([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]+)?)?"
    "(Z|[+-](0[0-9]|1[0-5])(:?[0-5][0-9])?)?)?"
)
_LARGEST_FLOAT = 3.4028235677973366e38


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
    except (ValueError, ArithmeticError):
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
        return _pairs(_of(value, dict), kind)
    if isinstance(kind, StructType):
        found = _of(value, dict)
        return {one.name: value_of(found.get(one.name), one.dataType) for one in kind.fields}
    read_as = _SCALARS.get(type(kind))
    return _text(value) if read_as is None else read_as(_text(value), kind)


def _of(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"not a {kind.__name__}")
    return value


def _pairs(found: dict[str, Any], kind: MapType) -> list[tuple[Any, Any]]:
    """Return the entries of a map; if two keys read as the same, the last one."""
    read = {value_of(k, kind.keyType): value_of(v, kind.valueType) for k, v in found.items()}
    return list(read.items())


def _text(value: Any) -> str:
    """Return a JSON value as text, as PostgreSQL's `->>` does."""
    if isinstance(value, str):
        return value
    if isinstance(value, Decimal):
        return f"{value:f}"
    return msgspec.json.format(_encoder.encode(value), indent=0).decode()


def _whole(bits: int) -> Callable[[str, DataType], int]:
    def read(text: str, kind: DataType) -> int:
        number = int(text)
        if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
            raise ValueError(f"{number} is out of range")
        return number

    return read


def _boolean(text: str, kind: DataType) -> bool:
    word = text.strip().lower()
    if word not in _TRUE | _FALSE:
        raise ValueError(f"{text} is neither true nor false")
    return word in _TRUE


def _fraction(largest: float) -> Callable[[str, DataType], float]:
    def read(text: str, kind: DataType) -> float:
        number = float(text)
        if abs(number) >= largest and "inf" not in text.lower():
            raise ValueError(f"{text} is out of range")
        return number

    return read


def _decimal(text: str, kind: Any) -> Decimal:
    """Return a number rounded to the scale of the type, or raise if it has too many digits."""
    context = Context(prec=max(kind.precision, 1), rounding=ROUND_HALF_UP)
    number = Decimal(text)
    if not number.is_finite():
        raise ValueError(f"{text} is not a decimal")
    return number.quantize(Decimal(1).scaleb(-kind.scale), context=context)


def _iso_time(text: str) -> datetime:
    if not _ISO_TIME.fullmatch(text):
        raise ValueError(f"{text} is not a date or time in ISO 8601")
    return datetime.fromisoformat(text)


def _date(text: str, kind: DataType) -> date:
    return _iso_time(text).date()


def _wall_time(text: str, kind: DataType) -> datetime:
    return _iso_time(text).replace(tzinfo=None)


def _instant(text: str, kind: DataType) -> datetime:
    read = _iso_time(text)
    return read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)


def _binary(text: str, kind: DataType) -> bytes:
    return base64.b64decode("".join(text.split()), validate=True)


_SCALARS: dict[type[DataType], Callable[[str, Any], Any]] = {
    BooleanType: _boolean,
    ByteType: _whole(8),
    ShortType: _whole(16),
    IntegerType: _whole(32),
    LongType: _whole(64),
    FloatType: _fraction(_LARGEST_FLOAT),
    DoubleType: _fraction(float("inf")),
    DecimalType: _decimal,
    DateType: _date,
    TimestampNTZType: _wall_time,
    TimestampType: _instant,
    BinaryType: _binary,
}
