"""What cannot be written to a table is refused by name, before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

import penstock
from penstock.errors import GraphError, NoWarehouse, StepFailed, WarehouseUnusable
from penstock.pipeline import Pipeline
from penstock.pipeline.checks import check
from tests.pipeline.lake.lake_harness import LakeHarness, fields, sales
from tests.pipeline.steps.running import Harness


def keeping(*columns: str, **options: Any) -> Pipeline:
    pipe = sales()

    @pipe.table("shop.sale", inputs="sale", **options)
    def keep(sale: DataFrame) -> DataFrame:
        return fields(sale).selectExpr(*columns or ("*",))

    return pipe


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"partition_by": "week(n)"}, "partition_by must be"),
        ({"mode": "upsert"}, "key must be the columns"),
        ({"mode": "merge"}, "mode must be 'append'"),
        ({"sort_by": 3}, "sort_by must be text"),
    ],
)
def test_a_declaration_is_refused_where_it_stands(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(GraphError, match=problem) as raised:
        keeping(**options)

    assert "test_bad_input.py" in str(raised.value)


def test_two_processors_cannot_write_to_one_table() -> None:
    pipe = keeping()

    @pipe.table("shop.Sale", inputs="sale")
    def other(sale: DataFrame) -> DataFrame:
        return sale

    with pytest.raises(GraphError, match=r"other writes to the Iceberg table shop\.Sale, as keep"):
        check(pipe)


def test_a_pipeline_with_tables_needs_a_warehouse(lake: LakeHarness, database_url: str) -> None:
    with penstock.connect(database_url) as store, pytest.raises(NoWarehouse):
        Harness(store, lake.spark).runner(keeping())


def test_a_warehouse_that_cannot_be_written_is_refused_before_the_first_step(
    lake: LakeHarness, database_url: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no folder")
    lake.send({"n": 1})

    with (
        penstock.connect(database_url, warehouse=f"file://{tmp_path}/file") as store,
        pytest.raises(WarehouseUnusable, match=f"{tmp_path}/file"),
    ):
        Harness(store, lake.spark).runner(keeping())


@pytest.mark.parametrize(
    ("columns", "options", "problem"),
    [
        (["n", "null as v"], {}, "cannot have a column v of type null"),
        (["n", "array(null) as v"], {}, "cannot have a column v of type list<"),
        (["n", "interval 1 day as v"], {}, "cannot have a column v of type duration"),
        (["n", "make_interval(1) as v"], {}, "a column v of type interval"),
        (["n", "array(parse_json('1')) as v"], {}, "a column v of type array<variant>"),
        (["n", "n as N"], {}, "cannot have columns n and N"),
        (["n"], {"partition_by": "day(n)"}, "cannot be partitioned by day of n"),
        (["n"], {"partition_by": "day(sold_at)"}, "has no column sold_at"),
        (["n"], {"key": "id"}, "there is no column id, which is of the key"),
        (["cast(n as double) as n"], {"key": "n"}, "cannot have the key n"),
    ],
)
def test_columns_that_do_not_fit_stop_the_processor(
    lake: LakeHarness, columns: list[str], options: dict[str, str], problem: str
) -> None:
    _refused(lake, columns, options, problem)


@pytest.mark.parametrize(
    ("columns", "options", "problem"),
    [
        (["1 as n", "v"], {"key": "n"}, "several rows for shop.sale have the key {'n': 1}"),
        (
            ["1 as n", "v", "1 as global_position"], {"key": "n"},
            "several rows for shop.sale have the key {'n': 1}",
        ),
        (["nullif(n, 2) as n", "v"], {"key": "n"}, "n of a row for shop.sale is None"),
    ],
)  # fmt: skip
def test_keys_that_identify_no_row_stop_the_processor(
    lake: LakeHarness, shape: str, columns: list[str], options: dict[str, str], problem: str
) -> None:
    _refused(lake, columns, options, problem)


def _refused(lake: LakeHarness, columns: list[str], options: dict[str, str], problem: str) -> None:
    pipe = keeping(*columns, **options)
    lake.send({"n": 1, "v": "x"}, {"n": 2, "v": "y"})

    with pytest.raises(StepFailed) as raised:
        lake.steps(pipe)

    assert problem in str(raised.value)
    assert lake.files() == set()
    assert lake.status(pipe).tailers[0].lag == 2
    assert lake.status(pipe).error is not None


def test_another_type_stops_the_processor_with_both_schemas(lake: LakeHarness) -> None:
    lake.send({"n": 1, "v": "x"})
    lake.steps(keeping("n", "v"))
    lake.send({"n": 2, "v": "y"})
    files = lake.files()

    with pytest.raises(StepFailed) as raised:
        lake.steps(keeping("string(n) as n", "v"))

    assert "the table has n long, v string" in str(raised.value)
    assert "the frame has n string, v string" in str(raised.value)
    assert lake.files() == files
    lake.steps(keeping("n", "v"))
    assert [row["n"] for row in lake.lake_rows("shop.sale")] == [1, 2]


def test_a_function_that_returns_no_frame_stops_the_processor(lake: LakeHarness) -> None:
    pipe = sales()

    @pipe.table("shop.sale", inputs="sale")
    def keep(sale: DataFrame) -> object:
        return [1]

    lake.send({"n": 1})

    with pytest.raises(StepFailed, match=r"keep returned \[1\]; it must return a DataFrame"):
        lake.steps(pipe)


def test_credentials_are_in_no_error_and_no_log(
    lake: LakeHarness, database_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    options = {"s3.secret-access-key": "hunter2hunter2", "s3.session-token": "abcabcabc"}
    warehouse = tmp_path / "other"
    lake.send({"n": 1})
    with penstock.connect(
        database_url, warehouse=f"file://{warehouse}", lake_options=options
    ) as store:
        runner = Harness(store, lake.spark, driver_rows=0).runner(keeping(partition_by="part"))
        warehouse.rmdir()
        warehouse.write_text("no folder any more")

        summary = runner.run_until_idle(check=False)

    text = f"{summary.errors} {caplog.text} {lake.status(keeping())}"
    assert "WarehouseUnusable" in text
    assert "hunter2" not in text
    assert "abcabcabc" not in text
