"""`penstock lake` lists the Iceberg tables, and `penstock lake maintain` keeps them in order."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from penstock.lake.store_catalog import StoreCatalog
from tests.cli.conftest import Run
from tests.lake.sales import create, lake, never_committed, sell

__all__ = ["lake"]
Lake = Callable[..., Result]


@pytest.fixture
def on_lake(penstock: Run, lake: StoreCatalog, tmp_path: Path) -> Lake:
    """The command `penstock lake`, with a warehouse."""
    warehouse = {"PENSTOCK_WAREHOUSE": f"file://{tmp_path}/lake"}
    return lambda *arguments, **options: penstock("lake", *arguments, env=warehouse, **options)


def lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_tables_are_listed_with_their_sizes(on_lake: Lake, lake: StoreCatalog) -> None:
    create(lake, "shop.empty")
    create(lake, "shop.europe.sale")
    sell(lake, 1, 2, name="shop.europe.sale")
    sell(lake, 3, name="shop.europe.sale")

    listed, (empty, sale) = on_lake().stdout.splitlines(), lines(on_lake("--json"))

    assert listed[0].split() == [
        *("table", "rows", "files", "size", "snapshots"),
        *("last", "commit", "written", "by"),
    ]
    assert listed[1].split() == ["shop.empty", "0", "0", "0", "B", "0"]
    assert listed[2].split()[:5] == ["shop.europe.sale", "3", "2", listed[2].split()[3], "kB"]
    assert (empty["name"], empty["last_commit"]) == ("shop.empty", None)
    assert (sale["rows"], sale["files"], sale["snapshots"]) == (3, 2, 2)
    assert sale["location"].startswith(lake.properties["warehouse"])


def test_upkeep_of_all_tables_says_what_it_did(on_lake: Lake, lake: StoreCatalog) -> None:
    create(lake)
    for n in range(20):
        sell(lake, n)
    create(lake, "shop.other")
    never_committed(lake, 1, name="shop.other")

    first, again = on_lake("maintain", "--keep-snapshots", "0s"), on_lake("maintain", "--json")
    removed = lines(on_lake("maintain", "shop.other", "--keep-files", "0s", "--json"))

    other, sale = first.stdout.splitlines()
    assert other == "shop.other: 1 unused file kept for now"
    assert sale.startswith("shop.sale: 20 files became 1, 20 snapshots expired, ")
    assert sale.endswith(" unused files kept for now")
    assert [(one["table"], one["compacted_files"]) for one in lines(again)] == [
        ("shop.other", 0),
        ("shop.sale", 0),
    ]
    assert [one["removed_files"] for one in removed] == [1]
    assert on_lake("maintain", "shop.other").stdout == "shop.other: nothing to do\n"


def test_a_table_that_does_not_exist_is_refused_before_others_change(
    on_lake: Lake, lake: StoreCatalog
) -> None:
    create(lake)
    for n in range(20):
        sell(lake, n)

    result = on_lake("maintain", "shop.sale", "shop.sales")

    assert result.exit_code == 1
    assert "shop.sales does not exist; there are shop.sale" in result.stderr
    assert len(lake.load_table("shop.sale").snapshots()) == 20


def test_without_a_warehouse_it_says_how_to_name_one(penstock: Run) -> None:
    result = penstock("lake")

    assert result.exit_code == 1
    assert "set warehouse, or PENSTOCK_WAREHOUSE" in result.stderr


def test_files_that_are_gone_are_reported_with_the_warehouse(
    on_lake: Lake, lake: StoreCatalog, tmp_path: Path
) -> None:
    create(lake)
    (tmp_path / "lake").rename(tmp_path / "elsewhere")

    result = on_lake()

    assert result.exit_code == 1
    assert f"the warehouse file://{tmp_path}/lake cannot be used" in result.stderr
