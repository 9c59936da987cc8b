"""Which of Spark's types have a form in JSON, all the way down.

Arrow hands out the others all the same, as whatever Spark keeps them in: a variant as two pieces of
bytes, an interval as a number without its unit. Nobody could read that back, so it is refused.
"""

from __future__ import annotations

from collections.abc import Iterator

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

from penstock.errors import WrongColumns

_SIMPLE: tuple[type[DataType], ...] = (
    StringType, NumericType, BooleanType, DateType, TimestampType, TimestampNTZType, TimeType,
    BinaryType, NullType,
)  # fmt: skip


def refuse_twice(schema: StructType) -> None:
    """Raise if a schema has two columns of one name."""
    names = schema.fieldNames()
    for name in names:
        if names.count(name) > 1:
            raise WrongColumns(f"column {name} is there twice", "give each a name of its own")


def refuse_without_json(name: str, kind: DataType) -> None:
    """Raise for the first part of a column that JSON has no form for."""
    for path, part in _parts(name, kind):
        if not isinstance(part, (*_SIMPLE, StructType, ArrayType, MapType)):
            problem = f"{path} is {part.simpleString()}, which has no form in JSON"
            raise WrongColumns(
                problem, "cast it to what should be read: a text, a number, a struct"
            )
        if isinstance(part, MapType) and not isinstance(part.keyType, AtomicType | NullType):
            problem = f"{path} has keys that are {part.keyType.simpleString()}"
            raise WrongColumns(
                problem, "a name in JSON is a text: make it one, or an array of structs"
            )


def _parts(path: str, kind: DataType) -> Iterator[tuple[str, DataType]]:
    """Return a type and all inside it, each with how one gets there."""
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
