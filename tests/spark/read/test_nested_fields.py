"""`data` and `metadata` as structs, arrays and maps, as a user's schema says."""

from __future__ import annotations

from decimal import Decimal

import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from penstock import Store
from penstock.errors import WrongColumns, WrongValue
from tests.spark.reading import read, struct, struct_of, typed_data

TEXTS = ArrayType(StringType())


def test_structs_arrays_and_maps_nest(store: Store, database_url: str) -> None:
    address = struct(city="string", zip="integer")
    line = struct(sku="string", prices=ArrayType(DecimalType(5, 2)))
    store.write_message(
        "order-1",
        "Placed",
        {
            "customer": {"name": "Ann", "address": {"city": "Bern", "zip": "3011"}},
            "lines": [{"sku": "a", "prices": [1.5, 2]}, {"sku": None, "prices": []}],
            "stock": {"a": {"left": 3}, "b": {"left": None}},
        },
    )

    kind = struct(
        customer=struct(name="string", address=address),
        lines=ArrayType(line),
        stock=MapType(StringType(), struct(left="integer")),
    )
    [data] = typed_data(database_url, kind, category="order")

    assert data == {
        "customer": {"name": "Ann", "address": {"city": "Bern", "zip": 3011}},
        "lines": [
            {"sku": "a", "prices": [Decimal("1.50"), Decimal("2.00")]},
            {"sku": None, "prices": []},
        ],
        "stock": [("a", {"left": 3}), ("b", {"left": None})],
    }


def test_a_wrong_value_deep_inside_is_named_by_its_path(store: Store, database_url: str) -> None:
    store.write_message("order-1", "Placed", {"customer": {"address": {"zip": "none"}}})
    kind = struct(customer=struct(address=struct(zip="integer")))

    with pytest.raises(WrongValue) as raised:
        typed_data(database_url, kind, category="order")

    assert str(raised.value).startswith(
        "data.customer.address.zip of the message at 1 is 'none', which does not read as int"
    )


def test_what_is_missing_or_null_reads_as_null(store: Store, database_url: str) -> None:
    store.write_message("thing-1", "Seen", {})
    store.write_message("thing-1", "Seen", {"a": None, "s": None, "l": None})
    store.write_message("thing-1", "Seen", {"s": {}})

    kind = struct(a="integer", s=struct(b="integer"), l=TEXTS)
    found = typed_data(database_url, kind, category="thing")

    nothing = {"a": None, "s": None, "l": None}
    assert found == [nothing, nothing, {**nothing, "s": {"b": None}}]


@pytest.mark.parametrize("kind", [struct(a="integer"), TEXTS])
def test_messages_without_data_read_as_null(
    store: Store, database_url: str, kind: DataType
) -> None:
    with store.transaction() as transaction:
        transaction.connection.execute(  # as other clients of Message DB may
            "select message_store.write_message(gen_random_uuid()::varchar, 'a-1', 'T', null)"
        )

    assert typed_data(database_url, kind, category="a") == [None]


def test_data_that_is_no_object_is_no_struct(store: Store, database_url: str) -> None:
    with store.transaction() as transaction:
        transaction.connection.execute(
            "select message_store.write_message(gen_random_uuid()::varchar, 'a-1', 'T', '[1]')"
        )

    with pytest.raises(WrongValue, match=r"data of the message at 1 is '\[1\]'"):
        typed_data(database_url, struct(a="integer"), category="a")


def test_names_of_fields_may_be_any_text(store: Store, database_url: str) -> None:
    written = {'it\'s "a" %s': {"b.c": 1, "ü {}": 2}}
    store.write_message("thing-1", "Seen", written)

    inside = struct_of({"b.c": "integer", "ü {}": "integer"})
    found = typed_data(database_url, struct_of({'it\'s "a" %s': inside}), category="thing")

    assert found == [written]


def test_metadata_is_typed_too(store: Store, database_url: str) -> None:
    store.write_message("thing-1", "Seen", {}, metadata={"user": {"id": 7}})

    table = read(database_url, struct(metadata=struct(user=struct(id="integer"))), stream="thing-1")

    assert table.column("metadata").to_pylist() == [{"user": {"id": 7}}]


def test_data_may_be_a_map(store: Store, database_url: str) -> None:
    store.write_message("thing-1", "Seen", {"a": 1, "b": "2"})

    [data] = typed_data(database_url, MapType(StringType(), StringType()), category="thing")

    assert data == [("a", "1"), ("b", "2")]


@pytest.mark.parametrize("kind", ["variant", "void", "interval day to second"])
def test_a_type_that_no_field_has_is_refused_before_anything_is_read(
    database_url: str, kind: str
) -> None:
    schema: StructType = struct(data=struct(a=kind))

    with pytest.raises(WrongColumns, match=r"data\.a cannot be read as"):
        read(database_url, schema, category="thing")


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (StructType([StructField("a", StringType(), False)]), "data.a is NOT NULL"),
        (struct(a=StructType([StructField("b", StringType(), False)])), "data.a.b is NOT NULL"),
        (struct(a=ArrayType(StringType(), False)), "an element of data.a is NOT NULL"),
        (struct(a=MapType(StringType(), StringType(), False)), "a value of data.a is NOT NULL"),
    ],
)
def test_what_a_message_may_lack_cannot_be_not_null(
    database_url: str, kind: DataType, problem: str
) -> None:
    with pytest.raises(WrongColumns, match=problem):
        read(database_url, struct(data=kind), category="thing")
