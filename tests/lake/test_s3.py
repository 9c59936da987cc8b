"""A warehouse on S3: written, read, kept in order; and credentials that stay secret."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest
from pyarrow import fs

from penstock.errors import WarehouseUnusable
from penstock.lake.create import check_warehouse
from penstock.lake.store_catalog import StoreCatalog, open_catalog
from penstock.lake.unused import remove_unused_files
from penstock.lake.upkeep import maintain
from penstock.settings import Settings
from tests.lake import s3_server
from tests.lake.sales import NAME, change, create, never_committed, numbers, sell

WAREHOUSE = "s3://lake/warehouse"
NOW = timedelta(0)


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    with s3_server.running() as options:
        yield options


@pytest.fixture
def on_s3(s3: dict[str, str], database_url: str) -> StoreCatalog:
    return open_catalog(Settings.load(database_url, warehouse=WAREHOUSE, lake_options=s3))


def keys(options: dict[str, str]) -> set[str]:
    """Return what is in the bucket, as another client of S3 lists it."""
    bucket = fs.S3FileSystem(
        endpoint_override=options["s3.endpoint"],
        region=options["s3.region"],
        access_key=options["s3.access-key-id"],
        secret_key=options["s3.secret-access-key"],
    )
    found = bucket.get_file_info(fs.FileSelector("lake", recursive=True))
    return {one.path for one in found if one.type == fs.FileType.File}


def test_a_step_writes_to_s3_and_upkeep_removes_what_nobody_needs(
    on_s3: StoreCatalog, s3: dict[str, str], database_url: str
) -> None:
    check_warehouse(on_s3)
    with psycopg.connect(database_url, autocommit=True) as connection:
        step = change(on_s3, connection, 1, 2, partition_by="day")
        step.stage()
        with connection.transaction():
            step.commit()
        step.committed()
    sell(on_s3, 3)
    committed = keys(s3)
    (left,) = never_committed(on_s3, 4)
    young = remove_unused_files(on_s3, NAME)
    old = remove_unused_files(on_s3, NAME, NOW)

    assert numbers(on_s3.load_table(NAME)) == [1, 2, 3]
    assert left.startswith(f"{WAREHOUSE}/shop/sale-")
    assert ((young.files, young.kept), (old.files, old.kept)) == ((0, 1), (1, 0))
    assert {one for one in keys(s3) if "_penstock_unused" not in one} == committed
    assert all(one.startswith("lake/warehouse/shop/sale-") for one in committed)

    done = maintain(on_s3, NAME, small_files=2, keep_snapshots_for=NOW, keep_files_for=NOW)

    assert (done.compacted_files, done.written_files) == (2, 1)
    assert done.removed_files > 2
    assert numbers(on_s3.load_table(NAME)) == [1, 2, 3]


@pytest.mark.parametrize("wrong", ["s3.secret-access-key", "s3.access-key-id", "warehouse"])
def test_a_warehouse_that_cannot_be_used_is_named_without_its_secrets(
    on_s3: StoreCatalog, s3: dict[str, str], database_url: str, wrong: str
) -> None:
    create(on_s3)
    options = {**s3, **({wrong: "0Wrong0"} if wrong.startswith("s3") else {})}
    warehouse = "s3://nowhere/lake" if wrong == "warehouse" else WAREHOUSE
    settings = Settings.load(database_url, warehouse=warehouse, lake_options=options)

    with pytest.raises(WarehouseUnusable, match=f"warehouse {warehouse} cannot be used") as caught:
        check_warehouse(open_catalog(settings))

    shown = f"{caught.value} {caught.value!r} {settings!r}"
    assert options["s3.secret-access-key"] not in shown
    assert options["s3.access-key-id"] not in shown
    if wrong != "warehouse":
        with pytest.raises(WarehouseUnusable):
            maintain(open_catalog(settings), NAME)


def test_credentials_may_be_those_of_the_environment(
    on_s3: StoreCatalog, s3: dict[str, str], database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3["s3.access-key-id"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3["s3.secret-access-key"])
    place = {name: s3[name] for name in ("s3.endpoint", "s3.region")}

    found = open_catalog(Settings.load(database_url, warehouse=WAREHOUSE, lake_options=place))

    create(found)
    sell(found, 1)
    assert numbers(on_s3.load_table(NAME)) == [1]
