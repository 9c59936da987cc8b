"""A warehouse on Google Cloud Storage: written, read, kept in order, and the archive in it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

import penstock
from penstock.errors import WarehouseUnusable
from penstock.lake.create import check_warehouse
from penstock.lake.store_catalog import StoreCatalog, open_catalog
from penstock.lake.unused import remove_unused_files
from penstock.lake.upkeep import maintain
from penstock.settings import Settings
from tests.lake.sales import NAME, change, never_committed, numbers, sell
from tests.log.archiving import archived, in_table

WAREHOUSE = "gs://lake/warehouse"
TOKEN = "ya29.never-shown"
NOW = timedelta(0)


@pytest.fixture(scope="module")
def gcs() -> Iterator[dict[str, str]]:
    program = [sys.executable, str(Path(__file__).with_name("gcs_program.py"))]
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        port = int(process.stdout.readline())
        yield {
            "gcs.service.host": f"http://127.0.0.1:{port}",
            "gcs.oauth2.token": TOKEN,
            "gcs.oauth2.token-expires-at": "4102444800000",
        }
        process.stdin.close()  # which ends it


@pytest.fixture
def on_gcs(gcs: dict[str, str], database_url: str) -> StoreCatalog:
    return open_catalog(Settings.load(database_url, warehouse=WAREHOUSE, lake_options=gcs))


def test_a_step_writes_to_gcs_and_upkeep_removes_what_nobody_needs(
    on_gcs: StoreCatalog, database_url: str
) -> None:
    check_warehouse(on_gcs)
    with psycopg.connect(database_url, autocommit=True) as connection:
        step = change(on_gcs, connection, 1, 2, partition_by="day")
        step.stage()
        with connection.transaction():
            step.commit()
        step.committed()
    sell(on_gcs, 3)
    (left,) = never_committed(on_gcs, 4)
    young = remove_unused_files(on_gcs, NAME)
    old = remove_unused_files(on_gcs, NAME, NOW)

    assert numbers(on_gcs.load_table(NAME)) == [1, 2, 3]
    assert left.startswith(f"{WAREHOUSE}/shop/sale-")
    assert ((young.files, young.kept), (old.files, old.kept)) == ((0, 1), (1, 0))

    done = maintain(on_gcs, NAME, small_files=2, keep_snapshots_for=NOW, keep_files_for=NOW)

    assert (done.compacted_files, done.written_files) == (2, 1)
    assert numbers(on_gcs.load_table(NAME)) == [1, 2, 3]


def test_reads_go_on_in_an_archive_on_gcs(gcs: dict[str, str], database_url: str) -> None:
    with penstock.connect(database_url, warehouse=WAREHOUSE, lake_options=gcs) as store:
        for number in range(12):
            store.write_message(f"account-{number % 2}", "Opened", {"n": number})

        moved = archived(store, "account").moved

        assert moved == 10
        assert len(in_table(store)) == 2
        found = [one.data["n"] for one in store.get_category_messages("account")]
        assert found == list(range(12))
        assert len(store.get_stream_messages("account-1")) == 6


def test_a_missing_bucket_is_named_without_the_token(
    gcs: dict[str, str], database_url: str
) -> None:
    settings = Settings.load(database_url, warehouse="gs://nowhere/lake", lake_options=gcs)

    with pytest.raises(WarehouseUnusable, match="gs://nowhere/lake cannot be used") as caught:
        check_warehouse(open_catalog(settings))

    assert TOKEN not in f"{caught.value} {caught.value!r} {settings!r}"


def test_a_token_without_its_expiry_is_refused(gcs: dict[str, str], database_url: str) -> None:
    options = {name: gcs[name] for name in ("gcs.service.host", "gcs.oauth2.token")}
    settings = Settings.load(database_url, warehouse=WAREHOUSE, lake_options=options)

    with pytest.raises(WarehouseUnusable, match="must be specified together"):
        check_warehouse(open_catalog(settings))
