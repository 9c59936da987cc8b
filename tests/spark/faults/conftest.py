"""Drivers and gates for the fault tests, which are gone when a test is."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.sql import SparkSession

from tests.conftest import Server
from tests.spark.faults.drivers import Driver
from tests.spark.faults.gates import Gate


@pytest.fixture
def gate(server: Server) -> Iterator[Gate]:
    """A gate that is shut."""
    gate = Gate(server.url("postgres"))
    yield gate
    gate.open()


@pytest.fixture
def thread(spark: SparkSession) -> Iterator[ThreadPoolExecutor]:
    """A thread to use the session in."""

    def begin() -> None:
        """Make the session this thread's own: else it does not find the format."""
        spark.createDataFrame([], "nothing int")

    with ThreadPoolExecutor(1, initializer=begin) as thread:
        yield thread


@pytest.fixture
def driver() -> Iterator[Driver]:
    """A driver of its own, to be killed."""
    driver = Driver("local[2]")
    driver.wait_until_ready()
    yield driver
    driver.kill()
