"""The catalog in the store's database: the standard's tables, in any transaction."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

import penstock
from penstock import Store, lake
from penstock.errors import NoWarehouse, WarehouseUnusable
from penstock.lake.create import check_warehouse, usable
from penstock.lake.declaration import lake_table
from penstock.lake.files import file_writer
from penstock.lake.store_catalog import open_catalog
from tests.lake.writing import LakeWriter, lake_settings, lake_writer, other_catalog
from tests.racing import at_once, wait_until_it_waits

SALES = lake_table("shop.sale")
#: as the specification of Iceberg's JDBC catalog has them
STANDARD = {
    "iceberg_namespace_properties": [
        ("catalog_name", 255, "NO", 1),
        ("namespace", 255, "NO", 2),
        ("property_key", 255, "NO", 3),
        ("property_value", 1000, "NO", None),
    ],
    "iceberg_tables": [
        ("catalog_name", 255, "NO", 1),
        ("iceberg_type", 5, "YES", None),
        ("metadata_location", 1000, "YES", None),
        ("previous_metadata_location", 1000, "YES", None),
        ("table_name", 255, "NO", 3),
        ("table_namespace", 255, "NO", 2),
    ],
}


@pytest.fixture
def writer(database_url: str, tmp_path: Path) -> Iterator[LakeWriter]:
    with lake_writer(database_url, tmp_path) as writer:
        yield writer


def numbers(*found: int) -> pa.Table:
    return pa.table({"n": pa.array(found, pa.int64())})


def test_a_message_and_a_snapshot_become_visible_in_one_transaction(
    writer: LakeWriter, database_url: str, store: Store
) -> None:
    writer.write(SALES, numbers(1))
    change = writer.stage(SALES, numbers(2))
    other = other_catalog(database_url)

    with writer.connection.transaction():
        change.commit()
        writer.connection.execute(
            "select message_store.write_message(gen_random_uuid()::text, 'sale-1', 'Sold', '{}')"
        )
        before = len(other.load_table("shop.sale").scan().to_arrow())
        written_before = store.get_stream_messages("sale-1")

    assert (before, written_before) == (1, [])
    assert len(other.load_table("shop.sale").scan().to_arrow()) == 2
    assert [one.type for one in store.get_stream_messages("sale-1")] == ["Sold"]


def test_a_transaction_that_is_rolled_back_leaves_the_table_as_it_was(
    writer: LakeWriter, database_url: str, store: Store
) -> None:
    writer.write(SALES, numbers(1))
    before = writer.catalog.load_table("shop.sale").metadata_location

    with writer.connection.transaction(force_rollback=True):
        writer.stage(SALES, numbers(2)).commit()
        writer.connection.execute(
            "select message_store.write_message(gen_random_uuid()::text, 'sale-1', 'Sold', '{}')"
        )

    found = other_catalog(database_url).load_table("shop.sale")
    assert found.metadata_location == before
    assert found.scan().to_arrow().to_pylist() == [{"n": 1}]
    assert store.get_stream_messages("sale-1") == []
    writer.write(SALES, numbers(3))
    assert writer.rows("shop.sale") == [{"n": 1}, {"n": 3}]


def test_a_transaction_that_is_rolled_back_removes_no_older_metadata(writer: LakeWriter) -> None:
    for number in range(25):
        writer.write(SALES, numbers(number))
    table = writer.catalog.load_table("shop.sale")

    with writer.connection.transaction(force_rollback=True):
        writer.stage(SALES, numbers(99)).commit()

    named = [one.metadata_file for one in table.metadata.metadata_log]
    assert len(named) == 20
    assert all(Path(one.removeprefix("file://")).exists() for one in named)


def test_metadata_that_a_commit_makes_out_of_date_is_removed(
    writer: LakeWriter, tmp_path: Path
) -> None:
    for number in range(25):
        writer.write(SALES, numbers(number))

    assert len(list(tmp_path.rglob("*.metadata.json"))) == 21  # the newest, and 20 before it


def test_the_tables_have_the_columns_of_the_standard(writer: LakeWriter) -> None:
    found: dict[str, list[tuple[object, ...]]] = {}
    for table, *column in writer.connection.execute(
        "select c.table_name, c.column_name, c.character_maximum_length, c.is_nullable,"
        "       k.ordinal_position"
        "  from information_schema.columns c"
        "  left join information_schema.key_column_usage k using (table_name, column_name)"
        " where c.table_name like 'iceberg%' and c.data_type = 'character varying'"
        " order by 1, 2"
    ):
        found.setdefault(table, []).append(tuple(column))

    assert found == STANDARD
    count = writer.connection.execute(
        "select count(*) from information_schema.columns where table_name like 'iceberg%'"
    ).fetchone()
    assert count == (10,)  # and none of another type


def test_many_who_open_the_catalog_at_once_create_its_tables_once(
    database_url: str, tmp_path: Path
) -> None:
    settings = lake_settings(database_url, tmp_path)

    found = at_once(*[lambda: open_catalog(settings)] * 6)

    assert [one for one in found if isinstance(one, Exception)] == []


def test_many_who_create_tables_of_a_new_namespace_at_once_all_do(
    database_url: str, tmp_path: Path
) -> None:
    settings = lake_settings(database_url, tmp_path)
    open_catalog(settings)

    def write(name: str, number: int) -> None:
        with lake_writer(database_url, tmp_path) as writer:
            writer.write(lake_table(name), numbers(number))

    found = at_once(*(lambda one=one: write(f"shop.table_{one % 3}", one) for one in range(6)))

    assert found == [None] * 6
    with lake_writer(database_url, tmp_path) as writer:
        rows = {name: writer.rows(f"shop.table_{name}") for name in range(3)}
    assert rows == {name: [{"n": name}, {"n": name + 3}] for name in range(3)}


def test_a_namespace_that_others_create_meanwhile_is_taken_as_it_is(
    writer: LakeWriter, database_url: str
) -> None:
    with psycopg.connect(database_url) as other, ThreadPoolExecutor(1) as thread:
        writer.catalog.on(other).create_namespace("shop")
        writing = thread.submit(writer.write, SALES, numbers(1))
        wait_until_it_waits(database_url, writing)
        other.commit()
        writing.result()

    assert writer.rows("shop.sale") == [{"n": 1}]


def test_somebody_with_pyiceberg_alone_writes_to_the_same_table(
    writer: LakeWriter, database_url: str
) -> None:
    writer.write(SALES, numbers(1))

    other_catalog(database_url).load_table("shop.sale").append(numbers(2))

    assert writer.rows("shop.sale") == [{"n": 1}, {"n": 2}]


def test_a_store_without_a_warehouse_has_no_catalog(store: Store) -> None:
    with pytest.raises(NoWarehouse, match="PENSTOCK_WAREHOUSE"):
        lake.catalog(store)


def test_the_catalog_of_a_store(database_url: str, tmp_path: Path) -> None:
    with penstock.connect(database_url, warehouse=f"file://{tmp_path}") as store:
        assert lake.catalog(store).list_namespaces() == []


def test_a_warehouse_that_cannot_be_written_is_named(database_url: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    settings = lake_settings(database_url, tmp_path / "file")

    with pytest.raises(WarehouseUnusable, match=f"{tmp_path}/file"):
        check_warehouse(open_catalog(settings))


def test_the_check_of_a_warehouse_leaves_nothing(database_url: str, tmp_path: Path) -> None:
    check_warehouse(open_catalog(lake_settings(database_url, tmp_path)))

    assert list(tmp_path.iterdir()) == []


def test_credentials_are_in_no_text(
    database_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secrets = {
        "s3.secret-access-key": "hunter2hunter2",
        "s3.session-token": "abcabcabc",
        "s3.access-key-id": "AKIAnobody",
    }
    found = open_catalog(lake_settings(database_url, tmp_path, **secrets))
    with psycopg.connect(database_url, autocommit=True) as connection:
        writer = LakeWriter(found.on(connection), connection)
        writer.write(SALES, numbers(1))
        change = writer.stage(SALES, numbers(2))
        reason = "no access for AKIAnobody by hunter2hunter2: s3://b?X-Amz-Signature=5ec4e7&x=1"

        with pytest.raises(WarehouseUnusable) as raised, usable(found.properties):
            raise OSError(reason)

        texts = [repr(found), str(found), repr(writer.catalog), repr(change), repr(change.table)]
        texts += [repr(file_writer(change.table)), str(raised.value), caplog.text]
    for secret in ("hunter2hunter2", "abcabcabc", "AKIAnobody", "5ec4e7"):
        assert not [text for text in texts if secret in text]
    assert "no access for *** by ***: s3://b?X-Amz-Signature=***&x=1" in str(raised.value)
