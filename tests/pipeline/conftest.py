"""One Spark session for all tests of a run, since it takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from penstock.pipeline import session

SETTINGS = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session as `penstock.pipeline.session` makes it, on two cores."""
    found = session("tests", master="local[2]", config=SETTINGS)
    yield found
    found.stop()
