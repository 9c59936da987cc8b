"""One Spark session for all tests of a run, since it takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from pyspark.sql import SparkSession

import penstock
from penstock import Store
from penstock.spark import session
from tests.conftest import Server
from tests.spark.writing import Writer

SETTINGS = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session as `penstock.spark.session` makes it, on two cores."""
    found = session("tests", master="local[2]", config=SETTINGS)
    yield found
    found.stop()


@pytest.fixture(scope="module")
def shared_url(server: Server) -> Iterator[str]:
    """A database that the tests of a module share: each uses categories of its own."""
    name = server.create_database(server.template("penstock"))
    yield server.url(name)
    server.drop_database(name)


@pytest.fixture(scope="module")
def shared_store(shared_url: str) -> Iterator[Store]:
    """A store on the database that the tests of a module share."""
    with penstock.connect(shared_url) as store:
        yield store


@pytest.fixture
def writer(database_url: str) -> Iterator[Writer]:
    """Stages and publishes on a connection of its own."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield Writer(connection)
