"""`penstock run` as a process: what it says, how it ends, and that there is one at a time."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from penstock import Store
from penstock.pipeline.connection import lock_run
from penstock.spark.connections import DatabaseRef
from tests.cli.conftest import Start, run
from tests.cli.conftest import start as start  # a fixture
from tests.spark.faults.waiting import wait_until, wait_until_blocked

MASTER = ("--master", "local[1]")
ASKING = "penstock run shop on %"
GATE = 77
SECONDS = 250  # for a process to end

FILE = """
import os
import psycopg
from penstock.pipeline import Pipeline

pipe = Pipeline("shop")
pipe.schema("order", "n int")

@pipe.stream(inputs="order", output="bill", limit=1)
def bill(order):
    with psycopg.connect(os.environ["PENSTOCK_URL"]) as gate:
        gate.execute("select pg_advisory_xact_lock(77)")
    return order.selectExpr("id", "global_position", "'Billed' as type", "data")

@pipe.sink(inputs="order", types=["Odd"])
def refuse(order):
    raise RuntimeError("odd")
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "shop.py"
    path.write_text(FILE)
    return str(path)


@pytest.fixture
def gate(database_url: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """A gate in the way of `bill`, which opens when the connection is closed."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("select pg_advisory_lock(%s)", (GATE,))
        yield connection


def bills(store: Store) -> list[int]:
    return [one.data["n"] for one in store.read_category("bill")]


def test_waiting_for_another_run_and_asked_to_end_it_finishes_the_step_in_hand(
    start: Start,
    java: dict[str, str],
    store: Store,
    file: str,
    gate: psycopg.Connection[tuple[object, ...]],
) -> None:
    url = store.settings.conninfo()
    for number in (1, 2):
        store.write_message("order-1", "Placed", {"n": number})
    lock = lock_run(DatabaseRef(store.settings), "shop")
    process = start("run", file, "--follow", "--wait", *MASTER, url=url, env=java)
    wait_until(url, "select count(*) = 2 from pg_stat_activity where application_name like %s",
               (ASKING,))  # fmt: skip
    before = bills(store)
    lock.release()
    wait_until_blocked(url, 1)

    process.send_signal(signal.SIGTERM)
    gate.close()

    output, errors = process.communicate(timeout=SECONDS)
    assert (before, bills(store)) == ([], [1])
    assert process.returncode == 0
    lines = [line.split() for line in output.splitlines()]
    assert lines[1][:5] == ["bill", "1", "1", "1", "0"]
    assert "bill: 1 in, 1 out, " in errors
    assert "shop: done, " in errors


def test_while_another_one_runs_it_is_refused_with_the_name_of_the_first(
    start: Start, java: dict[str, str], store: Store, file: str
) -> None:
    lock = lock_run(DatabaseRef(store.settings), "shop")

    process = start("run", file, *MASTER, url=store.settings.conninfo(), env=java)

    output, errors = process.communicate(timeout=SECONDS)
    lock.release()
    assert (process.returncode, output) == (1, "")
    assert "penstock: pipeline shop is already running (penstock run shop on " in errors
    assert "wait for it with --wait" in errors


def test_an_error_is_reported_and_the_others_go_on(
    start: Start, java: dict[str, str], store: Store, file: str
) -> None:
    url = store.settings.conninfo()
    store.write_message("order-1", "Odd", {"n": 1})

    process = start("run", file, "--from-scratch", *MASTER, url=url, env=java)

    output, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 1
    assert bills(store) == [1]
    refused = next(line for line in output.splitlines() if line.startswith("refuse"))
    assert "processor refuse (shop.py:15) failed: RuntimeError: odd" in refused
    assert "shop: stopped by an error; the next run goes on from here" in errors
    shown = json.loads(run("pipelines", "--json", url=url).stdout)
    assert [(one["processor"], one["generation"], one["error"]) for one in shown] == [
        ("bill", 1, None),
        ("refuse", 1, "RuntimeError: odd"),
    ]


def test_one_that_stays_broken_is_reported_at_once_and_ends_the_process_with_an_error(
    start: Start, java: dict[str, str], store: Store, file: str
) -> None:
    url = store.settings.conninfo()
    store.write_message("order-1", "Odd", {"n": 1})

    process = start("run", file, "--follow", "--retry-for", "1.5s", *MASTER, url=url, env=java)

    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 1
    lines = errors.splitlines()
    failed = "processor refuse (shop.py:15) failed: RuntimeError: odd"
    assert f"{failed}; it is tried again in 1 s" in lines
    assert failed in lines
    assert "Traceback" not in errors


USES_SPARK = """
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from penstock.pipeline import Pipeline

pipe = Pipeline("shop")
pipe.schema("order", "n int")
number = f.col("data.n")
twice = f.udf(lambda n: 2 * n, "int")
nobody = SparkSession.active().createDataFrame([], "n int")

@pipe.stream(inputs="order", output="bill")
def bill(order):
    return order.select(
        "id", "global_position", f.lit("Billed").alias("type"),
        f.struct(twice(number).alias("n")).alias("data"),
    )
"""


@pytest.fixture
def uses_spark(tmp_path: Path) -> str:
    """A file with columns, functions and frames outside its processors."""
    path = tmp_path / "shop.py"
    path.write_text(USES_SPARK)
    return str(path)


def test_a_file_may_use_spark_while_it_is_loaded(
    start: Start, java: dict[str, str], store: Store, uses_spark: str
) -> None:
    store.write_message("order-1", "Placed", {"n": 4})

    process = start("run", uses_spark, *MASTER, url=store.settings.conninfo(), env=java)

    _, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, bills(store)) == (0, [8]), errors


def test_the_graph_of_such_a_file_is_drawn(
    start: Start, java: dict[str, str], uses_spark: str
) -> None:
    process = start("graph", uses_spark, env=java)

    output, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, output.splitlines()[0]) == (0, "pipeline shop")
    assert errors.splitlines()[0] == "starting Spark for shop.py"


def test_to_load_such_a_file_without_spark_is_refused_by_name(uses_spark: str) -> None:
    program = "import sys; from penstock.pipeline import load; load(sys.argv[1])"

    told = subprocess.run(
        [sys.executable, "-c", program, uses_spark],
        capture_output=True, text=True, timeout=SECONDS,
    )  # fmt: skip

    assert told.returncode == 1
    assert told.stderr.splitlines()[-1] == (
        f"penstock.errors.pipeline.SparkNotRunning: {uses_spark}:8: this uses Spark while the "
        "file is loaded, and no Spark session runs: call penstock.spark.session() before load()"
    )


@pytest.mark.parametrize("idle", [True, False])
def test_a_java_process_that_is_killed_is_reported_as_such(
    start: Start,
    store: Store,
    file: str,
    gate: psycopg.Connection[tuple[object, ...]],
    idle: bool,
) -> None:
    url = store.settings.conninfo()
    if not idle:
        store.write_message("order-1", "Placed", {"n": 1})
    process = start("run", file, "--follow", *MASTER, url=url)
    wait_until(url, "select count(*) = 2 from penstock.tailers")
    if not idle:
        wait_until_blocked(url, 1)

    for child in psutil.Process(process.pid).children(recursive=True):
        if "java" in child.name():
            child.kill()
    gate.close()

    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 1
    assert "pipeline shop: Spark has stopped: its Java process was killed" in errors
    assert "mistake in Penstock" not in errors
    assert "Traceback" not in errors
    assert json.loads(run("pipelines", "--json", url=url).stdout)[0]["error"] is None


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (None, ": there is no such file"),
        ("def (:", ":1: it cannot be loaded: SyntaxError: invalid syntax (shop.py, line 1)"),
        ("\0", ": it cannot be loaded: "),
    ],
)
def test_a_file_that_is_no_python_is_refused_before_anything_starts(
    tmp_path: Path, text: str | None, complaint: str
) -> None:
    file = tmp_path / "shop.py"
    if text is not None:
        file.write_text(text)

    result = run("run", str(file), url="postgresql://127.0.0.1:1/nowhere")

    assert result.exit_code == 1
    assert result.stderr.startswith(f"penstock: {file}{complaint}")
    assert len(result.stderr.splitlines()) == 1


def test_a_file_without_a_pipeline_is_refused(
    start: Start, java: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "empty.py"
    file.write_text("")

    process = start("run", str(file), *MASTER, url="postgresql://127.0.0.1:1/nowhere", env=java)

    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 1
    assert errors.splitlines()[-1] == (
        f"penstock: {file}: there is no pipeline in it: define pipe = Pipeline(name)"
    )
