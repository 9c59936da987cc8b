"""Sources that read an Iceberg table: each row once, snapshot by snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.types import StringType
from pyspark.sql import DataFrame, SparkSession

import penstock
from penstock.errors import StepFailed
from penstock.lake.compaction import compact
from penstock.lake.store_catalog import StoreCatalog, catalog
from penstock.lake.upkeep import expire_snapshots
from penstock.pipeline import Pipeline
from penstock.pipeline.step import run_step
from tests.lake.sales import NAME, create, rows, sell
from tests.pipeline.steps.running import Harness, Stop, stop

NOW = timedelta(0)


@pytest.fixture
def harness(database_url: str, spark: SparkSession, tmp_path: Path) -> Iterator[Harness]:
    with penstock.connect(database_url, warehouse=f"file://{tmp_path}/lake") as store:
        harness = Harness(store, spark)
        yield harness
        harness.close()


@pytest.fixture
def lake(harness: Harness) -> StoreCatalog:
    found = catalog(harness.store)
    create(found)
    return found


def importing() -> Pipeline:
    """Return a pipeline whose source writes a message for each row of the table."""
    pipe = Pipeline("shop")

    @pipe.source(table=NAME, output="number")
    def sales(rows: DataFrame) -> DataFrame:
        return rows.selectExpr("'Numbered' as type", "to_json(named_struct('n', n)) as data")

    return pipe


@pytest.mark.usefixtures("shape")
def test_each_row_is_read_once_whatever_is_compacted_in_between(
    harness: Harness, lake: StoreCatalog
) -> None:
    sell(lake, 1, 2)
    sell(lake, 3)
    harness.steps(importing())
    first = sorted(harness.numbers("number"))
    sell(lake, 4)
    compact(lake, NAME, small_files=2)
    sell(lake, 5, 6)
    sell(lake, 7)

    reports = harness.steps(importing())

    assert first == [1, 2, 3]
    assert sorted(harness.numbers("number")) == [1, 2, 3, 4, 5, 6, 7]
    assert [one.messages_out for one in reports] == [4]
    assert harness.steps(importing()) == []


def test_a_step_that_was_killed_is_run_again_with_what_came_since(
    harness: Harness, lake: StoreCatalog
) -> None:
    sell(lake, 1)
    with pytest.raises(Stop):
        run_step(harness.context(importing(), before_commit=stop))
    sell(lake, 2)

    harness.steps(importing())

    assert sorted(harness.numbers("number")) == [1, 2]


def test_a_compaction_alone_brings_nothing(harness: Harness, lake: StoreCatalog) -> None:
    sell(lake, 1)
    sell(lake, 2)
    harness.steps(importing())
    compact(lake, NAME, small_files=2)

    harness.steps(importing())
    sell(lake, 3)
    harness.steps(importing())

    assert sorted(harness.numbers("number")) == [1, 2, 3]


def test_rows_have_the_columns_that_the_table_has_now(harness: Harness, lake: StoreCatalog) -> None:
    sell(lake, 1)
    with lake.load_table(NAME).update_schema() as update:
        update.add_column("note", StringType())
    lake.load_table(NAME).append(rows(2).append_column("note", pa.array(["new"])))
    pipe = Pipeline("shop")

    @pipe.source(table=NAME, output="note")
    def notes(rows: DataFrame) -> DataFrame:
        return rows.selectExpr("'Noted' as type", "to_json(struct(n, note)) as data")

    harness.steps(pipe)

    found = [one.data for one in harness.messages("note")]
    assert sorted(found, key=lambda data: data["n"]) == [{"n": 1}, {"n": 2, "note": "new"}]


def test_rows_that_were_replaced_or_deleted_stop_the_source(
    harness: Harness, lake: StoreCatalog
) -> None:
    sell(lake, 1)
    harness.steps(importing())
    lake.load_table(NAME).overwrite(rows(2))

    with pytest.raises(
        StepFailed, match=r"shop\.sale cannot be read on: its snapshot \d+ \("
    ) as it:
        harness.step(importing())

    assert "replaced or deleted rows" in str(it.value)
    assert "give the source another name" in str(it.value)
    assert harness.numbers("number") == [1]


def test_upkeep_keeps_the_snapshots_that_a_source_has_yet_to_read(
    harness: Harness, lake: StoreCatalog
) -> None:
    for n in range(3):
        sell(lake, n)
    harness.steps(importing())
    for n in range(3, 6):
        sell(lake, n)

    expired = expire_snapshots(lake, NAME, NOW, 1)
    harness.steps(importing())
    later = expire_snapshots(lake, NAME, NOW, 1)

    assert expired == (2, ("shop.sales",))
    assert sorted(harness.numbers("number")) == [0, 1, 2, 3, 4, 5]
    assert later == (3, ())


def test_a_snapshot_that_others_expired_stops_the_source(
    harness: Harness, lake: StoreCatalog
) -> None:
    sell(lake, 1)
    harness.steps(importing())
    read = lake.load_table(NAME).metadata.current_snapshot_id
    sell(lake, 2)
    sell(lake, 3)
    assert read is not None
    lake.load_table(NAME).maintenance.expire_snapshots().by_id(read).commit()

    with pytest.raises(StepFailed, match=f"no longer has the snapshot {read}"):
        harness.step(importing())

    assert harness.numbers("number") == [1]


def test_a_table_that_does_not_exist_stops_the_source(harness: Harness) -> None:
    with pytest.raises(StepFailed, match=r"shop\.sale does not exist"):
        harness.step(importing())
