"""Columns of a frame as JSON: which types have a JSON form, and the text of structs and maps.

Arrow returns values of the other types too, in Spark's internal form: a variant as two byte
strings, an interval as a number without its unit. Such a column could not be read back, so it is
refused. JSON has no NaN and no infinity either: such a value is refused. Fields that are null are
left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    AtomicType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    MapType,
    NullType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
    UserDefinedType,
)

from penstock.errors import WrongColumns, WrongValue

_encoder = msgspec.json.Encoder(decimal_format="number")
_SCALARS: tuple[type[DataType], ...] = (
    StringType, NumericType, BooleanType, DateType, TimestampType, TimestampNTZType, TimeType,
    BinaryType, NullType,
)  # fmt: skip


def refuse_duplicate_columns(schema: StructType) -> None:
    """Raise if a schema has two columns of one name."""
    names = schema.fieldNames()
    for name in names:
        if names.count(name) > 1:
            raise WrongColumns(f"column {name} is there twice", "give each a name of its own")


def refuse_without_json(name: str, kind: DataType) -> None:
    """Raise if a column, or a part of it, has a type without a JSON form."""
    for path, part in _parts(name, kind):
        if not isinstance(part, (*_SCALARS, StructType, ArrayType, MapType)):
            problem = f"{path} is {part.simpleString()}, which has no form in JSON"
            raise WrongColumns(
                problem, "cast it to what should be read: a text, a number, a struct"
            )
        if isinstance(part, MapType) and not isinstance(part.keyType, AtomicType | NullType):
            problem = f"{path} has keys that are {part.keyType.simpleString()}"
            raise WrongColumns(
                problem, "a name in JSON is a text: make it one, or an array of structs"
            )


def json_texts(column: Any, name: str) -> Any:
    """Return a column of structs or maps as a column of JSON texts."""
    _refuse_not_finite(column, name)
    encode = _encoder.encode
    texts = [None if one is None else encode(one).decode() for one in _values(column)]
    return pa.array(texts, pa.string())


def _parts(path: str, kind: DataType) -> Iterator[tuple[str, DataType]]:
    """Return a type and all types inside it, each with its path."""
    if isinstance(kind, UserDefinedType):
        kind = kind.sqlType()
    yield path, kind
    if isinstance(kind, StructType):
        for one in kind.fields:
            yield from _parts(f"{path}.{one.name}", one.dataType)
    elif isinstance(kind, ArrayType):
        yield from _parts(f"{path}[]", kind.elementType)
    elif isinstance(kind, MapType):
        yield from _parts(f"{path}[]", kind.keyType)
        yield from _parts(f"{path}[]", kind.valueType)


def _values(column: Any) -> list[Any]:
    """Return a column's values as Python's, structs and maps as dictionaries without nulls."""
    kind = column.type
    if pa.types.is_struct(kind):
        names = [kind.field(number).name for number in range(kind.num_fields)]
        parts = [_values(part) for part in column.flatten()]
        rows = zip(*parts, strict=True) if parts else ((),) * len(column)
        valid = column.is_valid().to_pylist()
        return [
            _object(names, row) if there else None for row, there in zip(rows, valid, strict=True)
        ]
    if pa.types.is_nested(kind):
        return [_plain(one, kind) for one in column.to_pylist()]
    return list(column.to_pylist())


def _refuse_not_finite(column: Any, name: str) -> None:
    """Raise for the first number in a column, or in a part of it, that JSON has no form for."""
    kind = column.type
    if pa.types.is_floating(kind):
        found = pc.index(pc.is_finite(column), False).as_py()
        if found >= 0:
            expected = "a finite number: JSON has no other"
            raise WrongValue(name, str(column[found].as_py()), expected, None)
    elif pa.types.is_struct(kind):
        for field, part in zip(kind, column.flatten(), strict=True):
            _refuse_not_finite(part, f"{name}.{field.name}")
    elif pa.types.is_map(kind):
        first, last = (column.offsets[0].as_py(), column.offsets[-1].as_py()) if column else (0, 0)
        for part in (column.keys, column.items):
            _refuse_not_finite(part.slice(first, last - first), f"{name}[]")
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        _refuse_not_finite(column.flatten(), f"{name}[]")


def _object(names: list[str], row: tuple[Any, ...]) -> dict[str, Any]:
    return {name: value for name, value in zip(names, row, strict=True) if value is not None}


def _plain(value: Any, kind: Any) -> Any:
    """Return a nested value of Arrow's as JSON's objects and arrays."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return {_key(key): _plain(one, kind.item_type) for key, one in value if one is not None}
    if pa.types.is_struct(kind):
        parts = ((part, value[part.name]) for part in kind)
        return {part.name: _plain(one, part.type) for part, one in parts if one is not None}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_plain(one, kind.value_type) for one in value]
    return value


def _key(key: Any) -> str:
    """Return a map's key as its value would be written: true, a time in ISO, bytes in base64."""
    return key if isinstance(key, str) else _encoder.encode(key).decode().strip('"')
