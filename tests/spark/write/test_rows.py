"""From the columns of a frame to the rows that are staged: pure, Arrow in and Arrow out."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DayTimeIntervalType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
    VariantType,
    YearMonthIntervalType,
)

from penstock.errors import WrongColumns, WrongValue
from penstock.spark.write.rows import rows_to_stage
from tests.spark.reading import struct

MESSAGE = struct(stream_name="string", type="string", data="string")


def staged(schema: StructType, *rows: tuple[Any, ...], order_by: str | None = None) -> pa.Table:
    """Return the rows that a frame's become."""
    found = to_arrow_schema(schema, timezone="UTC")
    columns = zip(*rows, strict=True)
    arrays = [pa.array(values, one.type) for values, one in zip(columns, found, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, names=schema.fieldNames())
    return rows_to_stage(schema, order_by).of(batch, 0)


def test_a_stream_a_type_and_json_text_make_a_message() -> None:
    rows = staged(MESSAGE, ("a-1", "Opened", '{"n": 1}'), ("a-1", "Closed", None))

    assert rows.column("stream_name").to_pylist() == ["a-1", "a-1"]
    assert rows.column("data").to_pylist() == ['{"n": 1}', None]
    assert rows.column("metadata").to_pylist() == [None, None]
    assert rows.column("ordinal").to_pylist() == [0, 1]
    assert "id" not in rows.column_names  # PostgreSQL draws them


def test_without_a_stream_the_type_is_the_category() -> None:
    rows = staged(struct(type="string", data="string"), ("Opened", "{}"))

    assert rows.column("stream_name").to_pylist() == [None]
    assert rows.column("category").to_pylist() == ["Opened"]


def test_missing_ids_are_drawn() -> None:
    given_id = "018f6d1c-7a2b-7c3d-8e4f-5a6b7c8d9e0f"
    rows = staged(
        struct(id="string", type="string", data="string"),
        (given_id, "Opened", "{}"),
        (None, "Opened", "{}"),
    )

    first, second = rows.column("id").to_pylist()
    assert first == given_id
    assert UUID(second) != UUID(given_id)


def test_nulls_of_a_struct_are_left_out() -> None:
    inside = struct(a="integer", b=struct(c="string", d="integer"))
    rows = staged(
        struct(type="string", data=inside),
        ("T", {"a": None, "b": {"c": "x", "d": None}}),
        ("T", {"a": 1, "b": None}),
        ("T", None),
    )

    assert rows.column("data").to_pylist() == ['{"b":{"c":"x"}}', '{"a":1}', None]


@pytest.mark.parametrize(
    ("kind", "key", "name"),
    [
        (BooleanType(), True, "true"),
        (LongType(), 7, "7"),
        (BinaryType(), b"\x00\xff", "AP8="),
        (DateType(), date(2026, 1, 2), "2026-01-02"),
        (TimestampType(), datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00Z"),
        (StringType(), '"quoted"', '\\"quoted\\"'),
    ],
)
def test_keys_of_a_map_are_written_as_values_are(kind: DataType, key: Any, name: str) -> None:
    schema = struct(type="string", data=struct(m=MapType(kind, LongType())))

    rows = staged(schema, ("T", {"m": [(key, 1)]}))

    assert rows.column("data").to_pylist() == [f'{{"m":{{"{name}":1}}}}']


def test_columns_that_a_read_gives_do_not_disturb() -> None:
    rows = staged(
        struct(type="string", data="string", position="long", global_position="long"),
        ("Opened", "{}", 3, 7),
    )

    assert rows.column("order_number").to_pylist() == [None]


WRONG_COLUMNS: list[tuple[StructType, str | None, str]] = [
    (struct(data="string"), None, "column type is missing"),
    (struct(type="string"), None, "column data is missing"),
    (
        struct(type="string", data="string", amount="integer"),
        None,
        "column amount is not one of a message",
    ),
    (struct(type="integer", data="string"), None, "column type is int; it has to be string"),
    (
        struct(type="string", data="integer"),
        None,
        "column data is int; it has to be string or a struct or a map",
    ),
    (
        struct(type="string", data="string", expected_version="string"),
        None,
        "column expected_version is string; it has to be a whole number",
    ),
    (struct(type="string", data="string"), "at", "there is no column at to order by"),
    (
        struct(type="string", data="string", at="binary"),
        "at",
        "column at is binary, which has no order here",
    ),
    (
        struct(type="string", data=struct(v=VariantType())),
        None,
        "data.v is variant, which has no form in JSON",
    ),
    (
        struct(type="string", data=struct(a=ArrayType(struct(t=DayTimeIntervalType())))),
        None,
        "data.a[].t is interval day to second, which has no form in JSON",
    ),
    (
        struct(type="string", data=MapType(StringType(), YearMonthIntervalType())),
        None,
        "data[] is interval year to month, which has no form in JSON",
    ),
    (
        struct(type="string", data=MapType(struct(a="integer"), LongType())),
        None,
        "data has keys that are struct<a:int>",
    ),
    (
        StructType([*MESSAGE.fields, MESSAGE["type"]]),
        None,
        "column type is there twice",
    ),
]


@pytest.mark.parametrize(("schema", "order_by", "problem"), WRONG_COLUMNS)
def test_wrong_columns_are_named(schema: StructType, order_by: str | None, problem: str) -> None:
    with pytest.raises(WrongColumns) as raised:
        rows_to_stage(schema, order_by)

    assert str(raised.value).startswith(problem)


WRONG_VALUES: list[tuple[tuple[Any, Any, Any], str]] = [
    (("a-1", None, "{}"), "type of a message to write is None, which does not read as a name"),
    (("a-1", "", "{}"), "type of a message to write is ''"),
    (("", "T", "{}"), "stream_name of a message to write is ''"),
    (("-x", "T", "{}"), "stream_name of a message to write is '-x'"),
    (("$all", "T", "{}"), "stream_name of a message to write is '$all'"),
    ((None, "a-b", "{}"), "type of a message to write is 'a-b'"),
    (("a-1", "T", "5"), "data of a message to write is '5', which does not read as a JSON object"),
    (("a-1", "T", " "), "data of a message to write is ' '"),
]


@pytest.mark.parametrize(("row", "problem"), WRONG_VALUES)
def test_wrong_values_are_named(row: tuple[Any, Any, Any], problem: str) -> None:
    with pytest.raises(WrongValue) as raised:
        staged(MESSAGE, ("a-1", "T", "{}"), row)

    assert str(raised.value).startswith(problem)
    assert "onWrongType" not in str(raised.value)


def test_an_expected_version_needs_a_stream() -> None:
    schema = struct(stream_name="string", type="string", data="string", expected_version="long")

    with pytest.raises(WrongValue, match=r"stream_name .* is None, .* an expected_version needs"):
        staged(schema, ("a-1", "T", "{}", 3), (None, "T", "{}", 3))


def order_of(kind: str, values: list[Any]) -> list[Any]:
    """Return the values in the order in which they would be written."""
    schema = struct(type="string", data="string", at=kind)
    rows = staged(schema, *(("T", "{}", value) for value in values), order_by="at")
    numbers = rows.column("order_number").to_pylist()
    texts = rows.column("order_text").to_pylist()
    keys = [one if two is None else two.encode() for one, two in zip(numbers, texts, strict=True)]
    return [values[number] for number in sorted(range(len(values)), key=lambda n: keys[n])]


NUMBERS = st.floats(allow_nan=False)
TIMES = st.datetimes(min_value=datetime(1, 1, 2), timezones=st.just(UTC))  # noqa: DTZ001


@given(st.lists(NUMBERS, min_size=1))
def test_numbers_are_written_in_their_order(values: list[float]) -> None:
    assert order_of("double", values) == sorted(values)


@given(st.lists(TIMES, min_size=1))
def test_times_are_written_in_their_order(values: list[datetime]) -> None:
    assert order_of("timestamp", values) == sorted(values)


@given(st.lists(st.dates(), min_size=1))
def test_dates_are_written_in_their_order(values: list[date]) -> None:
    assert order_of("date", values) == sorted(values)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1))
def test_texts_are_written_in_the_order_of_their_bytes(values: list[str]) -> None:
    assert order_of("string", values) == sorted(values, key=str.encode)


@pytest.mark.parametrize("kind", ["byte", "short", "integer", "long", "boolean"])
def test_whole_numbers_are_written_in_their_order(kind: str) -> None:
    values: list[Any] = [True, False] if kind == "boolean" else [3, -1, 2]

    assert order_of(kind, values) == sorted(values)


def test_an_ordinal_is_an_order_without_being_asked_for() -> None:
    rows = staged(struct(type="string", data="string", ordinal="integer"), ("T", "{}", 7))

    assert rows.column("order_number").to_pylist() == [7]
