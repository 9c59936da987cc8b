"""What a frame's structs hold comes back the same: through JSON, the log, and a typed read."""

from __future__ import annotations

import itertools
import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from penstock.errors import WrongValue
from penstock.spark.write.rows import rows_to_stage
from penstock.spark.write.staging import publish, stage
from tests.spark.reading import struct, struct_of, typed_data

Values = st.SearchStrategy[Any]
EARLIEST = datetime(1, 1, 2)  # noqa: DTZ001
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)


def whole(bits: int) -> Values:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def floats(width: Any) -> Values:
    return st.floats(allow_nan=False, allow_infinity=False, width=width)


SCALARS: dict[str, Values] = {
    "string": TEXTS,
    "byte": whole(8),
    "short": whole(16),
    "integer": whole(32),
    "long": whole(64),
    "float": floats(32),
    "double": floats(64),
    "boolean": st.booleans(),
    "decimal(12,3)": st.integers(-(10**12) + 1, 10**12 - 1).map(lambda n: Decimal(n).scaleb(-3)),
    "date": st.dates(),
    "timestamp": st.datetimes(min_value=EARLIEST, timezones=st.just(UTC)),
    "timestamp_ntz": st.datetimes(min_value=EARLIEST),
    "binary": st.binary(max_size=8),
}
Typed = tuple[DataType, Values]


def scalar(name: str) -> Typed:
    return struct(value=name)["value"].dataType, SCALARS[name]


def array_of(inside: Typed) -> Typed:
    kind, values = inside
    return ArrayType(kind), st.lists(st.none() | values, max_size=3)


def map_of(inside: Typed) -> Typed:
    kind, values = inside  # a null in a map is left out, as one in a struct is
    return MapType(StringType(), kind), st.dictionaries(TEXTS, values, max_size=3)


def struct_with(fields: dict[str, Typed]) -> tuple[StructType, Values]:
    kind = struct_of({name: kind for name, (kind, _) in fields.items()})
    values = {name: st.none() | values for name, (_, values) in fields.items()}
    return kind, st.fixed_dictionaries(values)


def structs_with(inside: st.SearchStrategy[Typed]) -> st.SearchStrategy[Any]:
    return st.dictionaries(TEXTS, inside, min_size=1, max_size=3).map(struct_with)


NESTED = st.recursive(
    st.sampled_from(sorted(SCALARS)).map(scalar),
    lambda inside: inside.map(array_of) | inside.map(map_of) | structs_with(inside),
    max_leaves=6,
)
_numbers = itertools.count()


@given(st.data())
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_structs_come_back_the_same(shared_url: str, data: st.DataObject) -> None:
    kind, values = data.draw(structs_with(NESTED))
    written = data.draw(st.lists(values, min_size=1, max_size=4))

    category = write(shared_url, kind, written)
    found = typed_data(shared_url, kind, category=category)

    assert [plain(one, kind) for one in found] == written


def write(url: str, kind: StructType, values: list[Any]) -> str:
    """Write a message for each value and return their category."""
    category = f"trip{next(_numbers)}"
    schema = struct(stream_name="string", type="string", data=kind)
    column = pa.array(
        [arrow_form(one, kind) for one in values], to_arrow_type(kind, timezone="UTC")
    )
    streams, types = [f"{category}-1"] * len(values), ["T"] * len(values)
    batch = pa.RecordBatch.from_arrays(
        [pa.array(streams), pa.array(types), column], names=schema.fieldNames()
    )
    with psycopg.connect(url, autocommit=True) as connection:
        staged = stage(connection, rows_to_stage(schema), [batch], url)
        publish(connection, None, 0, [staged], url)
    return category


def arrow_form(value: Any, kind: DataType) -> Any:
    """Return a value in the form that Arrow takes: a map as pairs."""
    if value is None:
        return None
    if isinstance(kind, StructType):
        return {one.name: arrow_form(value[one.name], one.dataType) for one in kind.fields}
    if isinstance(kind, ArrayType):
        return [arrow_form(one, kind.elementType) for one in value]
    if isinstance(kind, MapType):
        return [(name, arrow_form(one, kind.valueType)) for name, one in value.items()]
    return value


def plain(value: Any, kind: DataType) -> Any:
    """Return a value of Arrow's with its maps as dictionaries, which have no order."""
    if value is None:
        return None
    if isinstance(kind, StructType):
        return {one.name: plain(value[one.name], one.dataType) for one in kind.fields}
    if isinstance(kind, ArrayType):
        return [plain(one, kind.elementType) for one in value]
    if isinstance(kind, MapType):
        return {name: plain(one, kind.valueType) for name, one in value}
    return value


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_does_not_have_is_refused(shared_url: str, number: float) -> None:
    with pytest.raises(WrongValue, match=r"data\.a of a message to write"):
        write(shared_url, struct(a="double"), [{"a": number}])
