"""A harness on a fresh database for each test, all on one Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from penstock import Store
from tests.pipeline.steps.running import Harness


@pytest.fixture
def harness(store: Store, spark: SparkSession) -> Iterator[Harness]:
    harness = Harness(store, spark)
    yield harness
    harness.close()


@pytest.fixture(params=["driver", "executors"])
def shape(request: pytest.FixtureRequest, harness: Harness) -> str:
    """Both shapes of a step: read and staged by the driver, and by the executors."""
    if request.param == "executors":
        harness.driver_rows = 0
    return str(request.param)
