"""A connection is lost as a read begins: nobody's process ends, and the step is done again.

The driver that tasks read with aborts its process in such a moment. That must not be the user's
own; and where it is a worker's, the step has to know what has happened.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.errors import DatabaseUnreachable
from penstock.pipeline import Timing
from penstock.pipeline.step import run_step
from tests.forked_python import ROOT, spark_server
from tests.pipeline.steps.cut_off import WORD, reading
from tests.pipeline.steps.running import Harness
from tests.spark.faults.waiting import end_blocked, wait_until_blocked
from tests.spark.faults.wires import Wire


@pytest.fixture
def cut(database_url: str) -> Iterator[Wire]:
    """A wire that is cut as the read begins."""
    with Wire(database_url, WORD) as wire:
        yield wire


@pytest.fixture
def ended(database_url: str) -> Iterator[Wire]:
    """A wire at whose other end the backend is ended as the read begins."""
    blocking = psycopg.connect(database_url)

    def end() -> None:
        wait_until_blocked(database_url, 1)
        end_blocked(database_url)
        blocking.close()

    def block() -> None:
        blocking.execute("lock table message_store.messages in access exclusive mode")
        thread.submit(end)

    with ThreadPoolExecutor(1) as thread, Wire(database_url, WORD, block) as wire:
        yield wire


@pytest.mark.parametrize("how", ["cut", "ended"])
def test_the_users_process_outlives_it(
    harness: Harness, java: dict[str, str], request: pytest.FixtureRequest, how: str
) -> None:
    wire: Wire = request.getfixturevalue(how)
    harness.write("a", 1, 2)

    process = spark_server().start(
        *("-m", "tests.pipeline.steps.cut_off", wire.url),
        cwd=ROOT,
        env={**os.environ, **java},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    output, errors = process.communicate()

    assert (process.returncode, wire.was_said) == (0, True), errors
    assert "copy waits for the database: PostgreSQL at 127.0.0.1:" in errors
    assert "copied 2, error None" in output
    assert harness.numbers("b") == [1, 2]


def test_a_step_whose_task_is_cut_off_says_that_the_database_cannot_be_reached(
    harness: Harness, spark: SparkSession, cut: Wire
) -> None:
    harness.write("a", 1)

    with (
        penstock.connect(cut.url) as store,
        pytest.raises(DatabaseUnreachable, match="its worker was aborted") as caught,
    ):
        run_step(Harness(store, spark, driver_rows=0).context(reading()))

    assert "\n" not in str(caught.value)
    assert harness.status(reading()).error is None


def test_a_run_goes_on_whose_task_was_aborted(
    harness: Harness, spark: SparkSession, ended: Wire
) -> None:
    harness.write("a", 1, 2)

    with penstock.connect(ended.url) as store:
        timing = Timing(retry_delay=0.0)
        summary = Harness(store, spark, driver_rows=0, timing=timing).run(reading())

    assert ended.was_said
    assert summary.succeeded
    assert harness.numbers("b") == [1, 2]
