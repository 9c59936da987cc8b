"""The format `penstock` in Spark Connect, and in declarative pipelines, which are built on it."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path

import pyspark
import pytest

from penstock import Store
from penstock.spark.java import find_java_home

NEEDS = "Spark Connect is not installed: pip install 'pyspark[pipelines]'"
pytest.importorskip("grpc", reason=NEEDS)
pytest.importorskip("grpc_status", reason=NEEDS)
pytest.importorskip("zstandard", reason=NEEDS)
pytest.importorskip("yaml", reason=NEEDS)

ROOT = Path(__file__).parents[3]
SPARK = Path(pyspark.__file__).parent


def run(command: Sequence[str | Path], url: str, folder: Path) -> str:
    """Run a program of Spark's, with our Python and our Java, and return what it prints."""
    environment = {
        **os.environ,
        "PENSTOCK_URL": url,
        "JAVA_HOME": str(find_java_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    """Spark Connect has one port on a machine, which two tests cannot have at once."""
    with (Path(tempfile.gettempdir()) / "penstock-spark-connect.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture
def orders(store: Store) -> list[int]:
    """Write some orders and return their amounts."""
    amounts = [1, 2, 3, 4, 5]
    for amount in amounts:
        store.write_message(f"order-{amount % 2}", "Placed", {"amount": amount})
    return amounts


def test_a_client_of_spark_connect_reads_and_writes(
    store: Store, database_url: str, orders: list[int], tmp_path: Path
) -> None:
    client = Path(__file__).parent / "client_process.py"

    printed = run(
        [sys.executable, client, database_url, str(tmp_path / "c")], database_url, tmp_path
    )

    assert "read 3" in printed.splitlines()
    for category in ("Invoiced", "Shipped"):
        found = [one.data["amount"] for one in store.get_category_messages(category)]
        assert sorted(found) == orders


# A pipeline on a session of Spark Connect: what is raised is the point.
RUNNER = """
import sys, penstock
from pyspark.sql import SparkSession
from penstock.pipeline import Pipeline, Runner
pipe = Pipeline("shop")
pipe.schema("order", "amount int")
pipe.sink(inputs="order", name="bill")(lambda order: None)
spark = SparkSession.builder.remote("local[1]").getOrCreate()
with penstock.connect(sys.argv[1]) as store:
    try:
        Runner(pipe, store, spark)
    except Exception as error:
        print(type(error).__name__, error)
spark.stop()
"""


def test_a_pipeline_is_refused_by_name(database_url: str, tmp_path: Path) -> None:
    printed = run([sys.executable, "-c", RUNNER, database_url], database_url, tmp_path)

    (told,) = [line for line in printed.splitlines() if "Error" in line]
    assert told.startswith("ValidationError spark must be a SparkSession whose driver is this ")
    assert "Spark Connect" in told


def test_a_declarative_pipeline_reads_and_writes(
    store: Store, database_url: str, orders: list[int], tmp_path: Path
) -> None:
    folder = copy_example(tmp_path)

    run([SPARK / "bin" / "spark-pipelines", "run"], database_url, folder)

    found = store.get_category_messages("invoice")
    totals = [(one.stream_name, Decimal(str(one.data["total"]))) for one in found]
    assert totals == [(f"invoice-{one % 2}", one * Decimal("1.2")) for one in orders]


def copy_example(folder: Path) -> Path:
    """Return a copy of the example that keeps its storage there."""
    copy = shutil.copytree(ROOT / "examples" / "declarative_pipeline", folder / "example")
    specification = copy / "spark-pipeline.yml"
    text = specification.read_text()
    specification.write_text(text.replace("file:///tmp/", f"file://{folder}/"))
    return copy
