"""Databases and writers that the tests on Spark share."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

import penstock
from penstock import Store
from tests.conftest import Server
from tests.spark.writing import Writer


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
