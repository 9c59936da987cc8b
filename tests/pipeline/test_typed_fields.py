"""`data` and `metadata` as a user's schema types them, read in PostgreSQL."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from penstock import Store
from penstock.errors import WrongColumns, WrongValue
from tests.pipeline.reading import column, read

SCALARS: list[tuple[str, Any, Any]] = [
    ("string", "text", "text"),
    ("string", 1.50, "1.5"),
    ("string", True, "true"),
    ("string", {"a": [1, None]}, '{"a": [1, null]}'),
    ("tinyint", -128, -128),
    ("smallint", 32767, 32767),
    ("int", "12", 12),
    ("bigint", 2**63 - 1, 2**63 - 1),
    ("float", 0.5, 0.5),
    ("double", 1e300, 1e300),
    ("double", 3, 3.0),
    ("boolean", False, False),
    ("boolean", "yes", True),
    ("decimal(10,2)", 1.235, Decimal("1.24")),
    ("decimal(38,0)", 10**37, Decimal(10**37)),
    ("date", "2026-02-28", date(2026, 2, 28)),
    ("timestamp", "2026-01-01T10:00:00+02:00", datetime(2026, 1, 1, 8, tzinfo=UTC)),
    ("timestamp", "2026-01-01 10:00:00.123456", datetime(2026, 1, 1, 10, 0, 0, 123456, UTC)),
    ("timestamp_ntz", "2026-01-01T10:00:00", datetime(2026, 1, 1, 10)),  # noqa: DTZ001
    ("binary", "AAEC/w==", b"\x00\x01\x02\xff"),
]

WRONG: list[tuple[str, Any]] = [
    ("tinyint", 128),
    ("int", 2**31),
    ("int", 1.5),
    ("int", True),
    ("bigint", "twelve"),
    ("float", 1e39),
    ("double", "1,5"),
    ("boolean", 2),
    ("decimal(4,2)", 100),
    ("decimal(10,2)", "NaN"),
    ("date", "2026-02-30"),
    ("date", "infinity"),
    ("timestamp", "10 o'clock"),
    ("timestamp", "infinity"),
    ("timestamp_ntz", "12026-01-01 00:00"),
    ("binary", "not base64!"),
    ("struct<a: int>", "text"),
    ("struct<a: int>", [1]),
    ("array<int>", {"a": 1}),
    ("map<string, int>", [1]),
]


def write(store: Store, value: Any) -> None:
    store.write_message("thing-1", "Seen", {"value": value})


@pytest.mark.parametrize(("kind", "written", "expected"), SCALARS)
def test_a_scalar_is_read_in_its_type(
    store: Store, database_url: str, kind: str, written: Any, expected: Any
) -> None:
    write(store, written)

    [data] = column(database_url, f"data struct<value: {kind}>")

    assert data == {"value": expected}


@pytest.mark.parametrize(("kind", "written", "expected"), SCALARS)
def test_a_scalar_in_an_array_is_read_as_one_that_stands_alone(
    store: Store, database_url: str, kind: str, written: Any, expected: Any
) -> None:
    write(store, [written, None])

    [data] = column(database_url, f"data struct<value: array<{kind}>>")

    assert data == {"value": [expected, None]}


@pytest.mark.parametrize(("kind", "written"), WRONG)
def test_a_value_of_the_wrong_type_is_named(
    store: Store, database_url: str, kind: str, written: Any
) -> None:
    store.write_message("thing-1", "Seen", {"value": None})
    write(store, written)

    with pytest.raises(WrongValue) as raised:
        column(database_url, f"data struct<value: {kind}>")

    assert raised.value.field == "data.value"
    assert raised.value.global_position == 2
    assert "at 2 is" in str(raised.value)
    assert 'onWrongType="null"' in str(raised.value)


@pytest.mark.parametrize(("kind", "written"), WRONG)
def test_a_value_of_the_wrong_type_is_null_if_the_reader_says_so(
    store: Store, database_url: str, kind: str, written: Any
) -> None:
    write(store, written)

    found = column(
        database_url, f"data struct<value: {kind}>", category="thing", onWrongType="null"
    )

    assert found == [{"value": None}]


@pytest.mark.parametrize(("kind", "written"), WRONG)
def test_a_wrong_value_in_an_array_is_named_and_the_array_null_if_the_reader_says_so(
    store: Store, database_url: str, kind: str, written: Any
) -> None:
    write(store, [written])
    schema = f"data struct<value: array<{kind}>>"

    with pytest.raises(WrongValue) as raised:
        column(database_url, schema)

    assert (raised.value.field, raised.value.global_position) == ("data.value", 1)
    found = column(database_url, schema, category="thing", onWrongType="null")
    assert found == [{"value": None}]


def test_structs_arrays_and_maps_nest(store: Store, database_url: str) -> None:
    store.write_message(
        "order-1",
        "Placed",
        {
            "customer": {"name": "Ann", "address": {"city": "Bern", "zip": "3011"}},
            "lines": [{"sku": "a", "prices": [1.5, 2]}, {"sku": None, "prices": []}],
            "stock": {"a": {"left": 3}, "b": {"left": None}},
        },
    )

    [data] = column(
        database_url,
        """data struct<
             customer: struct<name: string, address: struct<city: string, zip: int>>,
             lines: array<struct<sku: string, prices: array<decimal(5,2)>>>,
             stock: map<string, struct<left: int>>>""",
    )

    assert data == {
        "customer": {"name": "Ann", "address": {"city": "Bern", "zip": 3011}},
        "lines": [
            {"sku": "a", "prices": [Decimal("1.50"), Decimal("2.00")]},
            {"sku": None, "prices": []},
        ],
        "stock": [("a", {"left": 3}), ("b", {"left": None})],
    }


def test_what_is_missing_or_null_reads_as_null(store: Store, database_url: str) -> None:
    store.write_message("thing-1", "Seen", {})
    store.write_message("thing-1", "Seen", {"a": None, "s": None, "l": None})
    store.write_message("thing-1", "Seen")

    found = column(database_url, "data struct<a: int, s: struct<b: int>, l: array<int>>")

    nothing = {"a": None, "s": None, "l": None}
    assert found == [nothing, nothing, None]


def test_an_empty_object_is_a_struct_of_nulls(store: Store, database_url: str) -> None:
    write(store, {})

    [data] = column(database_url, "data struct<value: struct<a: int>>")

    assert data == {"value": {"a": None}}


def test_names_of_fields_may_be_any_text(store: Store, database_url: str) -> None:
    store.write_message("thing-1", "Seen", {"it's \"a\" %s": {"b.c": 1, "ü {}": 2}})

    [data] = column(
        database_url, "data struct<`it's \"a\" %s`: struct<`b.c`: int, `ü {}`: int>>"
    )

    assert data == {"it's \"a\" %s": {"b.c": 1, "ü {}": 2}}


def test_metadata_is_typed_too(store: Store, database_url: str) -> None:
    store.write_message("thing-1", "Seen", {}, metadata={"user": {"id": 7}})

    found = column(database_url, "metadata struct<user: struct<id: int>>", "metadata")

    assert found == [{"user": {"id": 7}}]


def test_data_may_be_a_map(store: Store, database_url: str) -> None:
    store.write_message("thing-1", "Seen", {"a": 1, "b": "2"})

    assert column(database_url, "data map<string, int>") == [[("a", 1), ("b", 2)]]


@pytest.mark.parametrize("kind", ["variant", "interval day to second", "void"])
def test_a_type_that_no_field_has_is_refused_before_anything_is_read(
    database_url: str, kind: str
) -> None:
    with pytest.raises(WrongColumns, match=r"data\.a cannot be read as"):
        read(database_url, f"data struct<a: {kind}>", category="thing")


