"""The lake's screens, of a table that steps of a pipeline have written."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock
from penstock.pipeline import Pipeline, Runner
from tests.console.conftest import asking
from tests.lake.writing import other_catalog


@dataclass(frozen=True)
class Sales:
    """A database whose pipeline `shop` has written the table `shop.sale` in two steps."""

    url: str
    warehouse: Path
    began_at: datetime

    @property
    def settings(self) -> dict[str, Any]:
        return {"warehouse": f"file://{self.warehouse}"}

    def files(self) -> list[int]:
        """Return the sizes of the data files."""
        return [one.stat().st_size for one in self.warehouse.rglob("*.parquet")]


@pytest.fixture
def sales(database_url: str, spark: SparkSession, tmp_path: Path) -> Sales:
    made = Sales(database_url, tmp_path / "lake", datetime.now(UTC))
    pipe = Pipeline("shop")
    pipe.schema("sale", "n bigint, item string")

    @pipe.table("shop.sale", inputs="sale")
    def keep(sale: DataFrame) -> DataFrame:
        return sale.select("data.*", "global_position")

    with penstock.connect(database_url, **made.settings) as store:
        for numbers in ((1, 2, 3), (4, 5)):
            for n in numbers:
                store.write_message(f"sale-{n}", "Sold", {"n": n, "item": "tea"})
            Runner(pipe, store, spark).run_until_idle()
    return made


async def _get(sales: Sales, *addresses: str) -> list[httpx2.Response]:
    async with (
        await penstock.connect_async(sales.url, **sales.settings) as store,
        asking(store) as client,
    ):
        return [await client.get(one) for one in addresses]


async def test_a_table_with_its_rows_files_snapshots_and_last_commit(sales: Sales) -> None:
    table = other_catalog(sales.url).load_table("shop.sale")
    files = sales.files()

    listed, shown = await _get(sales, "/api/tables", "/api/tables/table?table=shop.sale")

    [one] = listed.json()["tables"]
    assert one == shown.json()["table"]
    assert (one["name"], one["rows"], one["snapshots"]) == ("shop.sale", 5, 2)
    assert one["files"] == len(files)
    assert one["size_in_bytes"] == sum(files)
    assert one["written_by"] == "shop.keep"
    assert one["location"] == table.location()
    committed = datetime.fromisoformat(one["last_commit"])
    assert sales.began_at <= committed <= datetime.now(UTC)
    newest, oldest = shown.json()["snapshots"]
    current = table.current_snapshot()
    assert current is not None
    assert str(newest["snapshot_id"]) == str(current.snapshot_id)
    assert (newest["operation"], newest["added_rows"], newest["total_rows"]) == ("append", 2, 5)
    assert (oldest["added_rows"], oldest["total_rows"]) == (3, 3)
    assert (newest["pipeline"], newest["processor"]) == ("shop", "keep")
    assert datetime.fromisoformat(newest["committed_at"]) == committed


async def test_a_snapshot_leads_to_the_step_that_has_committed_it(sales: Sales) -> None:
    shown, step = await _get(
        sales,
        "/api/tables/table?table=shop.sale",
        "/api/pipelines/processor?pipeline=shop&processor=keep",
    )

    deliveries = [one["delivery"] for one in shown.json()["snapshots"]]
    assert deliveries == [one["delivery"] for one in step.json()["detail"]["steps"]["items"]]


async def test_the_pages_show_it(sales: Sales) -> None:
    listed, shown, missing = await _get(
        sales, "/tables", "/tables/table?table=shop.sale", "/tables/table?table=shop.other"
    )

    assert 'href="/tables/table?table=shop.sale"' in listed.text
    assert "shop.keep" in listed.text
    snapshots = other_catalog(sales.url).load_table("shop.sale").snapshots()
    assert [f"<code>{one.snapshot_id}</code>" in shown.text for one in snapshots] == [True, True]
    assert 'href="/pipelines/processor?pipeline=shop&amp;processor=keep"' in shown.text
    assert missing.status_code == 404


async def test_a_console_without_the_warehouse_shows_none(sales: Sales) -> None:
    async with await penstock.connect_async(sales.url) as store, asking(store) as client:
        page = await client.get("/tables")

    assert "No tables in the lake" in page.text
