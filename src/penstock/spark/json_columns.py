"""Columns of a frame as JSON: which types have a JSON form, and the text of structs and maps.

Arrow returns values of the other types too, in Spark's internal form: a variant as two byte
strings, an interval as a number without its unit. Such a column could not be read back, so it is
refused. JSON has no NaN and no infinity either: such a value is refused. Fields that are null are
left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice, pairwise
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import ArrayType, AtomicType, DataType, MapType, StructType, UserDefinedType

from penstock.errors import WrongColumns, WrongValue

_encoder = msgspec.json.Encoder(decimal_format="number")
_JSON_TYPES = {
    "string", "boolean", "byte", "short", "integer", "long", "float", "double", "decimal", "date",
    "time", "timestamp", "timestamp_ntz", "binary", "void", "struct", "array", "map",
}  # fmt: skip


def refuse_duplicate_columns(schema: StructType) -> None:
    """Raise if a schema has two columns of one name."""
    names = schema.fieldNames()
    for name in names:
        if names.count(name) > 1:
            raise WrongColumns(f"column {name} is there twice", "give each a name of its own")


def refuse_without_json(name: str, kind: DataType) -> None:
    """Raise if a column, or a part of it, has a type without a JSON form."""
    for path, part in type_parts(name, kind):
        if part.typeName() not in _JSON_TYPES:
            problem = f"{path} is {part.simpleString()}, which has no form in JSON"
            expected = "cast it to what should be read: a text, a number, a struct"
            raise WrongColumns(problem, expected)
        if isinstance(part, MapType) and not (
            isinstance(part.keyType, AtomicType) or part.keyType.typeName() == "void"
        ):
            problem = f"{path} has keys that are {part.keyType.simpleString()}"
            expected = "a name in JSON is a text: make it one, or an array of structs"
            raise WrongColumns(problem, expected)


def json_texts(column: Any, name: str) -> Any:
    """Return a column of structs or maps as a column of JSON texts."""
    encode = _encoder.encode
    values = _values(column, name)
    return pa.array([None if one is None else encode(one).decode() for one in values], pa.string())


def type_parts(path: str, kind: DataType) -> Iterator[tuple[str, DataType]]:
    """Return a type and all types inside it, each with its path."""
    if isinstance(kind, UserDefinedType):
        kind = kind.sqlType()
    yield path, kind
    if isinstance(kind, StructType):
        for one in kind.fields:
            yield from type_parts(f"{path}.{one.name}", one.dataType)
    elif isinstance(kind, ArrayType):
        yield from type_parts(f"{path}[]", kind.elementType)
    elif isinstance(kind, MapType):
        yield from type_parts(f"{path}[]", kind.keyType)
        yield from type_parts(f"{path}[]", kind.valueType)


def _values(column: Any, name: str) -> list[Any]:
    """Return a column's values as JSON's, or raise for a number that JSON has no form for."""
    kind = column.type
    if pa.types.is_struct(kind):
        return _objects(column, name)
    if pa.types.is_map(kind):
        return _maps(column, name)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        items = iter(_values(column.flatten(), f"{name}[]"))
        counts = pc.list_value_length(column).to_pylist()
        return [None if count is None else list(islice(items, count)) for count in counts]
    if pa.types.is_floating(kind):
        found = pc.index(pc.is_finite(column), False).as_py()
        if found >= 0:
            expected = "a finite number: JSON has no other"
            raise WrongValue(name, str(column[found].as_py()), expected, None)
    return list(column.to_pylist())


def _objects(column: Any, name: str) -> list[Any]:
    """Return structs as dictionaries, without the fields that are null."""
    names = [field.name for field in column.type]
    fields = zip(names, column.flatten(), strict=True)
    parts = [_values(part, f"{name}.{field}") for field, part in fields]
    rows = zip(*parts, strict=True) if parts else ((),) * len(column)
    return [
        _without_nulls(zip(names, row, strict=True)) if there else None
        for row, there in zip(rows, column.is_valid().to_pylist(), strict=True)
    ]


def _maps(column: Any, name: str) -> list[Any]:
    """Return maps as dictionaries, without the keys whose values are null."""
    if not len(column):
        return []
    offsets = column.offsets.to_pylist()
    first, count = offsets[0], offsets[-1] - offsets[0]
    keys = [_key(one) for one in _values(column.keys.slice(first, count), f"{name}[]")]
    items = _values(column.items.slice(first, count), f"{name}[]")
    pairs = list(zip(keys, items, strict=True))
    valid = column.is_valid().to_pylist()
    return [
        _without_nulls(pairs[start - first : end - first]) if there else None
        for (start, end), there in zip(pairwise(offsets), valid, strict=True)
    ]


def _without_nulls(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in pairs if value is not None}


def _key(key: Any) -> str:
    """Return a map's key as its value would be written: true, a time in ISO, bytes in base64."""
    return key if isinstance(key, str) else _encoder.encode(key).decode().strip('"')
