"""One Spark session for all tests of a run, and one JVM for processes that start theirs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import psycopg
import pytest
from pyspark.sql import SparkSession

import penstock
from penstock import Store
from penstock.spark import session
from tests.conftest import Server
from tests.docs.spark_examples import OF_JAVA
from tests.forked_python import spark_server
from tests.spark.writing import Writer

#: starts Spark as `penstock run` does, stops it, and keeps its JVM until the input ends
KEEP_JAVA = """
import json, sys
from penstock.spark import session

spark = session(master="local[1]")
java = spark.sparkContext._gateway.java_parameters
spark.stop()
known = {"PYSPARK_GATEWAY_PORT": str(java.port), "PYSPARK_GATEWAY_SECRET": java.auth_token}
print(json.dumps(known), flush=True)
sys.stdin.read()
"""

SETTINGS = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session as `penstock.spark.session` makes it, on two cores."""
    found = session("tests", master="local[2]", config=SETTINGS)
    yield found
    found.stop()


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The variables by which a process finds a JVM that runs, instead of starting its own.

    The processes of the tests use it one after the other, and each stops its Spark.
    """
    errors = tmp_path_factory.mktemp("java") / "stderr"
    with (
        errors.open("w") as file,
        spark_server().start(
            *("-c", KEEP_JAVA), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file
        ) as process,
    ):
        assert process.stdout
        yield json.loads(process.stdout.readline())
        process.communicate(timeout=250)
    assert errors.read_text().replace(OF_JAVA, "") == ""


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
