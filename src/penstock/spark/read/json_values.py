"""Arrays and maps, which arrive as JSON text, in the types of a Spark schema.

A scalar inside them is read from its text, as PostgreSQL reads a field of its own.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import types

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
    texts: pa.Array, name: str, kind: types.DataType, arrow: pa.DataType, null_if_wrong: bool
) -> pa.Array:
    """Return a column of JSON texts as a column of that type."""

    def read(text: str) -> Any:
        try:
            return _value(_decoder.decode(text), kind)
        except (ValueError, ArithmeticError):
            if null_if_wrong:
                return None
            raise WrongValue(name, text, kind.simpleString(), None) from None

    return pa.array([None if text is None else read(text) for text in texts.to_pylist()], arrow)


def _value(value: Any, kind: types.DataType) -> Any:
    """Return a decoded JSON value as Python's value for a Spark type."""
    if value is None:
        return None
    if isinstance(kind, types.ArrayType):
        return [_value(one, kind.elementType) for one in _of(value, list)]
    if isinstance(kind, types.MapType):
        found = _of(value, dict).items()
        # if two keys read as the same, the last one counts
        read = {_value(key, kind.keyType): _value(one, kind.valueType) for key, one in found}
        return list(read.items())
    if isinstance(kind, types.StructType):
        found = _of(value, dict)
        return {one.name: _value(found.get(one.name), one.dataType) for one in kind.fields}
    text, read_as = _text(value), _SCALARS.get(type(kind))
    if read_as is not None:
        return read_as(text)
    return _decimal(text, kind) if isinstance(kind, types.DecimalType) else text


def _of(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"not a {kind.__name__}")
    return value


def _text(value: Any) -> str:
    """Return a JSON value as text, as PostgreSQL's `->>` does."""
    if isinstance(value, str):
        return value
    if isinstance(value, Decimal):
        return f"{value:f}"
    return msgspec.json.format(_encoder.encode(value), indent=0).decode()


def _whole(bits: int, text: str) -> int:
    number = int(text)
    if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise ValueError(f"{number} is out of range")
    return number


def _fraction(largest: float, text: str) -> float:
    number = float(text)
    if abs(number) >= largest and "inf" not in text.lower():
        raise ValueError(f"{text} is out of range")
    return number


def _decimal(text: str, kind: types.DecimalType) -> Decimal:
    """Return a number rounded to the scale of the type, or raise if it has too many digits."""
    context = Context(prec=max(kind.precision, 1), rounding=ROUND_HALF_UP)
    number = Decimal(text)
    if not number.is_finite():
        raise ValueError(f"{text} is not a decimal")
    return number.quantize(Decimal(1).scaleb(-kind.scale), context=context)


def _boolean(text: str) -> bool:
    word = text.strip().lower()
    if word not in _TRUE | _FALSE:
        raise ValueError(f"{text} is neither true nor false")
    return word in _TRUE


def _iso_time(text: str) -> datetime:
    if not _ISO_TIME.fullmatch(text):
        raise ValueError(f"{text} is not a date or time in ISO 8601")
    return datetime.fromisoformat(text)


def _instant(text: str) -> datetime:
    read = _iso_time(text)
    return read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)


_SCALARS: dict[type[types.DataType], Callable[[str], Any]] = {
    types.BooleanType: _boolean,
    types.ByteType: partial(_whole, 8),
    types.ShortType: partial(_whole, 16),
    types.IntegerType: partial(_whole, 32),
    types.LongType: partial(_whole, 64),
    types.FloatType: partial(_fraction, _LARGEST_FLOAT),
    types.DoubleType: partial(_fraction, float("inf")),
    types.DateType: lambda text: _iso_time(text).date(),
    types.TimestampType: _instant,
    types.TimestampNTZType: lambda text: _iso_time(text).replace(tzinfo=None),
    types.BinaryType: lambda text: base64.b64decode("".join(text.split()), validate=True),
}
