"""A harness whose store has a warehouse, on a fresh database for each test, all on one Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.pipeline.frames import DRIVER_ROWS
from tests.pipeline.lake.lake_harness import LakeHarness


@pytest.fixture
def lake(database_url: str, spark: SparkSession, tmp_path: Path) -> Iterator[LakeHarness]:
    with penstock.connect(database_url, warehouse=f"file://{tmp_path}/lake") as store:
        harness = LakeHarness(store, spark, tmp_path / "lake")
        yield harness
        harness.close()


@pytest.fixture(params=["driver", "executors"])
def shape(request: pytest.FixtureRequest, lake: LakeHarness) -> str:
    """Both shapes of a step: written by the driver, and by the executors."""
    lake.driver_rows = DRIVER_ROWS if request.param == "driver" else 0
    return str(request.param)
