"""Structs and maps of a frame as JSON text. Fields that are null are left out.

JSON has no form for a number that is none, or infinite: such a value is refused.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import WrongValue

_encoder = msgspec.json.Encoder(decimal_format="number")


def json_texts(column: Any, name: str) -> Any:
    """Return a column of structs or maps as a column of JSON texts."""
    _refuse_not_finite(column, name)
    encode = _encoder.encode
    texts = [None if one is None else encode(one).decode() for one in values(column)]
    return pa.array(texts, pa.string())


def values(column: Any) -> list[Any]:
    """Return a column's values as Python's, structs and maps as dictionaries without nulls."""
    kind = column.type
    if pa.types.is_struct(kind):
        names = [kind.field(number).name for number in range(kind.num_fields)]
        parts = [values(part) for part in column.flatten()]
        rows = zip(*parts, strict=True) if parts else ((),) * len(column)
        valid = column.is_valid().to_pylist()
        return [
            _object(names, row) if there else None for row, there in zip(rows, valid, strict=True)
        ]
    if pa.types.is_nested(kind):
        return [_plain(one, kind) for one in column.to_pylist()]
    return list(column.to_pylist())


def _refuse_not_finite(column: Any, name: str) -> None:
    """Raise for the first number in a column, all the way down, that JSON has no form for."""
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
    """Return what Arrow gives for a nested value, in the form JSON has for it."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return {_name(key): _plain(one, kind.item_type) for key, one in value if one is not None}
    if pa.types.is_struct(kind):
        parts = ((part, value[part.name]) for part in kind)
        return {part.name: _plain(one, part.type) for part, one in parts if one is not None}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_plain(one, kind.value_type) for one in value]
    return value


def _name(key: Any) -> str:
    """Return a map's key as its value would be written: true, a time in ISO, bytes in base64."""
    return key if isinstance(key, str) else _encoder.encode(key).decode().strip('"')
