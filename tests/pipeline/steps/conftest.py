"""A workshop on a fresh database for each test, all on one Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from penstock import Store
from tests.pipeline.steps.running import Workshop


@pytest.fixture
def workshop(store: Store, spark: SparkSession) -> Iterator[Workshop]:
    workshop = Workshop(store, spark)
    yield workshop
    workshop.close()


@pytest.fixture(params=["driver", "executors"])
def shape(request: pytest.FixtureRequest, workshop: Workshop) -> str:
    """Both shapes of a step: read and staged by the driver, and by the executors."""
    if request.param == "executors":
        workshop.driver_rows = 0
    return str(request.param)
