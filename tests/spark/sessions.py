"""One Spark session for all tests of a worker, and one JVM for processes that start theirs.

A plugin of pytest: a fixture that several files import is made once for each of them.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from penstock.spark import session
from tests.docs.spark_examples import OF_JAVA
from tests.forked_python import spark_server

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
#: a query that is run once or twice takes less of the processor's time if it is not compiled
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session as `penstock.spark.session` makes it, on two cores."""
    found = session("tests", master="local[2]", config={**SETTINGS, **INTERPRETED})
    yield found
    found.stop()


@pytest.fixture
def compiled_queries(spark: SparkSession) -> Iterator[None]:
    """Let Spark compile queries, as it does by itself: errors may come from other classes."""
    for name in INTERPRETED:
        spark.conf.unset(name)
    yield
    for name, value in INTERPRETED.items():
        spark.conf.set(name, value)


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
