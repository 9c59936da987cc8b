"""Creating tables, adding columns to them, and what is refused before a file is written."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from penstock.errors import WrongTable
from penstock.lake.create import prepare_table
from penstock.lake.declaration import lake_table
from tests.lake.writing import LakeWriter, lake_writer

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
#: a column of each type that both Spark and Iceberg have, and a value
TYPES: dict[str, tuple[pa.DataType, Any]] = {
    "boolean": (pa.bool_(), True),
    "int": (pa.int32(), -5),
    "bigint": (pa.int64(), 2**60),
    "float": (pa.float32(), 0.5),
    "double": (pa.float64(), math.pi),
    "decimal": (pa.decimal128(38, 4), Decimal("-12345678901234567890.1234")),
    "string": (pa.string(), "äöü €"),
    "binary": (pa.binary(), b"\0\xff"),
    "date": (pa.date32(), date(1969, 7, 20)),
    "timestamp": (pa.timestamp("us", "UTC"), NOON),
    "timestamp_ntz": (pa.timestamp("us"), (NOON - timedelta(days=99999)).replace(tzinfo=None)),
    "list": (pa.list_(pa.int32()), [1, None, 3]),
    "struct": (pa.struct([("a", pa.int32()), ("b", pa.string())]), {"a": 1, "b": None}),
    "map": (pa.map_(pa.string(), pa.int64()), [("k", 1)]),
    "list of maps": (pa.list_(pa.map_(pa.string(), pa.int32())), [[("k", 1)], None]),
    "nested": (
        pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.list_(pa.date32())))])),
        [{"m": [("k", [date(2026, 1, 1)])]}],
    ),
}
#: what a type can be partitioned by
PARTITIONS = {
    "boolean": ("{}",),
    "int": ("{}", "bucket(4, {})", "truncate(10, {})"),
    "bigint": ("{}", "bucket(4, {})", "truncate(10, {})"),
    "decimal": ("{}", "bucket(4, {})", "truncate(10, {})"),
    "string": ("{}", "bucket(4, {})", "truncate(2, {})"),
    "binary": ("{}", "bucket(4, {})"),
    "date": ("{}", "bucket(4, {})", "year({})", "month({})", "day({})"),
    "timestamp": ("{}", "bucket(4, {})", "year({})", "month({})", "day({})", "hour({})"),
    "timestamp_ntz": ("{}", "bucket(4, {})", "year({})", "month({})", "day({})", "hour({})"),
}


@pytest.fixture(scope="module")
def writer(server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeWriter]:
    """One database for all: each test has a table of its own."""
    name = server.create_database(server.template("penstock"))
    with lake_writer(server.url(name), tmp_path_factory.mktemp("lake")) as writer:
        yield writer
    server.drop_database(name)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return "shop." + "".join(c if c.isalnum() else "_" for c in request.node.name)[:150]


LIST_OF_STRUCTS = pa.list_(pa.struct([("a", pa.int32())]))


def one_row(number: int, type: str) -> pa.Table:
    of, value = TYPES[type]
    return pa.table({"n": [number, number + 1], "v": pa.array([value, None], of)})


@pytest.mark.parametrize("type", TYPES)
def test_a_value_of_each_type_comes_back_as_it_was(
    writer: LakeWriter, name: str, type: str
) -> None:
    writer.write(lake_table(name), one_row(1, type))

    assert _in_file(writer, name)["v"] == [TYPES[type][1], None]
    if type != "nested":  # pyiceberg reads no null list of structs
        assert writer.rows(name) == [{"n": 1, "v": TYPES[type][1]}, {"n": 2, "v": None}]


def test_a_null_list_of_structs_stays_null_when_its_file_is_rewritten(
    writer: LakeWriter, name: str
) -> None:
    declared = lake_table(name, key="n")
    for column in ([None, [], [{"a": 1}]], [[{"a": 2}]]):
        numbers = list(range(3 - len(column), 3))
        writer.write(declared, pa.table({"n": numbers, "v": pa.array(column, LIST_OF_STRUCTS)}))

    files = writer.catalog.load_table(name).scan().plan_files()
    found = [_read(task.file.file_path) for task in files]
    assert {n: v for one in found for n, v in zip(one["n"], one["v"], strict=True)} == {
        0: None, 1: [], 2: [{"a": 2}],
    }  # fmt: skip


def test_columns_that_others_rename_or_replace_are_followed_when_a_file_is_rewritten(
    writer: LakeWriter, name: str
) -> None:
    declared = lake_table(name, key="n")
    writer.write(declared, pa.table({"n": [1, 2], "a": ["x", "y"], "b": ["old", "old"]}))
    with writer.catalog.load_table(name).update_schema() as update:
        update.rename_column("a", "c")
        update.delete_column("b")
    writer.write(declared, pa.table({"n": [3], "c": ["z"], "b": ["new"]}))

    writer.write(declared, pa.table({"n": [1], "c": ["w"], "b": ["new"]}))

    assert writer.rows(name) == [
        {"n": 1, "c": "w", "b": "new"},
        {"n": 2, "c": "y", "b": None},
        {"n": 3, "c": "z", "b": "new"},
    ]


def test_a_partition_value_of_any_length_and_a_column_of_any_name(
    writer: LakeWriter, name: str
) -> None:
    long = "/ä%" * 400
    rows = pa.table({"n": [1, 2], "v": [long, "short/.."], "a b.c-€": [1, None]})

    writer.write(lake_table(name, partition_by="v"), rows)

    assert writer.rows(name) == rows.to_pylist()


@pytest.mark.parametrize(
    ("type", "form"), [(type, form) for type, forms in PARTITIONS.items() for form in forms]
)
def test_partitions_of_each_kind_hold_all_rows_nulls_too_and_are_replaced_one_by_one(
    writer: LakeWriter, name: str, type: str, form: str
) -> None:
    declared = lake_table(name, partition_by=form.format("v"), mode="overwrite")
    writer.write(declared, one_row(1, type))

    writer.write(declared, one_row(3, type).slice(0, 1))  # the partition of the value, not of null

    assert writer.rows(name) == [{"n": 2, "v": None}, {"n": 3, "v": TYPES[type][1]}]


@pytest.mark.parametrize("type", list(PARTITIONS))
def test_a_key_of_each_type_identifies_a_row(writer: LakeWriter, name: str, type: str) -> None:
    of, value = TYPES[type]
    other = next(iter(pa.array([False if type == "boolean" else _other(value)], of))).as_py()
    declared = lake_table(name, key="v")
    writer.write(declared, pa.table({"n": [1, 2], "v": pa.array([value, other], of)}))

    writer.write(declared, pa.table({"n": [3], "v": pa.array([value], of)}))

    assert writer.rows(name) == [{"n": 2, "v": other}, {"n": 3, "v": value}]


def _other(value: Any) -> Any:
    if isinstance(value, str | bytes):
        return value * 2
    return value.replace(year=2000) if isinstance(value, date) else value + 1


@pytest.mark.parametrize("type", ["float", "double", "list", "struct", "map"])
def test_a_column_that_cannot_be_partitioned_by_is_refused(
    writer: LakeWriter, name: str, type: str
) -> None:
    with pytest.raises(WrongTable, match="cannot be partitioned by identity of v"):
        prepare_table(
            writer.catalog, name, lake_table(name, partition_by="v"), one_row(1, type).schema
        )
    assert not writer.catalog.table_exists(name)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"partition_by": "day(n)"}, "by day of n, which is of type long"),
        ({"partition_by": "hour(d)"}, "by hour of d, which is of type date"),
        ({"partition_by": "nothing"}, "no column nothing, which partition_by names"),
        ({"sort_by": "nothing"}, "no column nothing, which sort_by names"),
        ({"sort_by": "s"}, "cannot be sorted by s"),
        ({"partition_by": "day(d)"}, "has a column d_day, the name of its partitions"),
        ({"key": "f"}, "the key f, which is of type double"),
        ({"key": "s"}, "the key s, which is of type struct"),
    ],
)
def test_a_declaration_that_does_not_fit_the_columns_is_refused(
    writer: LakeWriter, name: str, options: dict[str, Any], problem: str
) -> None:
    struct = pa.struct([("a", pa.int32())])
    columns = {"n": pa.int64(), "d": pa.date32(), "d_day": pa.int32(), "f": pa.float64()}

    with pytest.raises(WrongTable, match=problem):
        prepare_table(
            writer.catalog, name, lake_table(name, **options),
            pa.schema({**columns, "s": struct}),
        )  # fmt: skip

    assert not writer.catalog.table_exists(name)


@pytest.mark.parametrize(
    "type", [pa.null(), pa.duration("us"), pa.list_(pa.null()), pa.struct([("a", pa.null())])]
)
def test_a_type_that_iceberg_lacks_is_named_with_its_column(
    writer: LakeWriter, name: str, type: pa.DataType
) -> None:
    with pytest.raises(WrongTable, match="cannot have a column v of type"):
        prepare_table(
            writer.catalog, name, lake_table(name), pa.schema({"n": pa.int64(), "v": type})
        )
    assert not writer.catalog.table_exists(name)


def test_a_nested_column_can_be_partitioned_by(writer: LakeWriter, name: str) -> None:
    struct = pa.struct([("a", pa.int32())])
    rows = pa.table({"n": [1, 2, 3], "s": pa.array([{"a": 1}, None, {"a": None}], struct)})

    writer.write(lake_table(name, partition_by="s.a"), rows)

    assert writer.rows(name) == rows.to_pylist()


def test_a_new_column_is_added_and_one_that_is_left_out_is_null(
    writer: LakeWriter, name: str
) -> None:
    declared = lake_table(name)
    writer.write(declared, pa.table({"n": [1], "old": ["a"]}))

    writer.write(declared, pa.table({"new": [0.5], "n": [2]}))

    assert writer.rows(name) == [
        {"n": 1, "old": "a", "new": None},
        {"n": 2, "old": None, "new": 0.5},
    ]


def test_a_new_field_of_a_struct_is_added_wherever_it_is(writer: LakeWriter, name: str) -> None:
    items: list[dict[str, Any]] = [{"a": 1}, {"b": "x", "a": 2}, {"b": "y"}]
    declared, rows = lake_table(name), []
    for number, item in enumerate(items):
        fields = [(key, pa.int32() if key == "a" else pa.string()) for key in item]
        column = pa.array([[item]], pa.list_(pa.struct(fields)))
        rows.append({"n": number, "s": [{"a": item.get("a"), "b": item.get("b")}]})
        writer.write(declared, pa.table({"n": [number], "s": column}))

    assert writer.rows(name) == rows


def test_a_column_becomes_wider_and_takes_narrower_values(writer: LakeWriter, name: str) -> None:
    declared = lake_table(name, key="n")
    for number, type in enumerate([pa.int32(), pa.int64(), pa.int32()]):
        columns = {"n": pa.array([number], type), "v": pa.array([number], type)}
        writer.write(declared, pa.table(columns))

    assert writer.rows(name) == [{"n": one, "v": one} for one in range(3)]
    assert str(writer.catalog.load_table(name).schema().find_type("v")) == "long"


@pytest.mark.parametrize(
    ("column", "type"),
    [
        ("v", pa.string()),
        ("v", pa.struct([("a", pa.int32())])),
        ("t", pa.binary()),
        ("t", pa.int64()),
        ("s", pa.int64()),
        ("s", pa.list_(pa.int64())),
        ("V", pa.int64()),
    ],
)
def test_another_type_is_refused_with_both_schemas(
    writer: LakeWriter, name: str, column: str, type: pa.DataType
) -> None:
    struct = pa.struct([("a", pa.int32())])
    first = pa.schema({"n": pa.int64(), "v": pa.int64(), "t": pa.string(), "s": struct})
    prepare_table(writer.catalog, name, lake_table(name), first)
    before = writer.catalog.load_table(name)
    changed = pa.schema({"n": pa.int64(), column: type})

    with pytest.raises(WrongTable, match="does not take this frame") as raised:
        prepare_table(writer.catalog, name, lake_table(name), changed)

    assert "\nthe table has n long, v long, t string, s struct" in str(raised.value)
    assert f"\nthe frame has n long, {column} " in str(raised.value)
    assert writer.catalog.load_table(name).metadata_location == before.metadata_location


def test_a_frame_without_the_key_is_refused(writer: LakeWriter, name: str) -> None:
    writer.write(lake_table(name, key="n"), pa.table({"n": [1], "v": [1]}))

    with pytest.raises(WrongTable, match="the frame lacks n, which cannot be null"):
        prepare_table(writer.catalog, name, lake_table(name), pa.schema({"v": pa.int64()}))


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ({}, {"partition_by": "n"}, "is partitioned by nothing"),
        ({"partition_by": "n"}, {}, "is partitioned by .'identity of n'."),
        ({"partition_by": "bucket(4, n)"}, {"partition_by": "bucket(8, n)"}, "and declared with"),
        ({"key": "n"}, {"key": "v"}, "has the key .'n'., not .'v'."),
    ],
)
def test_another_layout_is_refused(
    writer: LakeWriter, name: str, before: Any, after: Any, problem: str
) -> None:
    rows = pa.table({"n": [1], "v": [1]})
    writer.write(lake_table(name, **before), rows)

    with pytest.raises(WrongTable, match=problem):
        prepare_table(writer.catalog, name, lake_table(name, **after), rows.schema)


def test_the_rows_of_a_file_are_sorted_and_the_order_can_be_changed(
    writer: LakeWriter, name: str
) -> None:
    rows = pa.table({"a": [1, 1, None, 2], "b": ["x", "y", "z", None]})
    writer.write(lake_table(name, sort_by=["a desc", "b"]), rows)
    first = _in_file(writer, name)

    writer.write(lake_table(name, sort_by="b desc", mode="overwrite"), rows)

    assert first["a"] == [2, 1, 1, None]
    assert first["b"] == [None, "x", "y", "z"]
    assert _in_file(writer, name)["b"] == ["z", "y", "x", None]
    order = writer.catalog.load_table(name).sort_order()
    assert [str(one.direction) for one in order.fields] == ["DESC"]


def _in_file(writer: LakeWriter, name: str) -> dict[str, list[Any]]:
    (task,) = writer.catalog.load_table(name).scan().plan_files()
    return _read(task.file.file_path)


def _read(location: str) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = parquet.read_table(location.removeprefix("file://")).to_pydict()
    return found
