"""A step that reads little may make much: what the driver holds does not grow with it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from penstock.pipeline.frames import DRIVER_ROWS
from penstock.pipeline.outputs import FEW, is_known_to_be_small
from tests.pipeline.steps.running import Harness, numbered, pipeline

LINES = 300_000
# On a session whose JVM has 512 MB, as a step's driver would be on a small machine.
_RUN = """
from penstock import connect
from penstock.pipeline import Pipeline, Runner
from penstock.spark import session

pipe = Pipeline("shop")
pipe.schema("order")


@pipe.stream(inputs="order", output="line")
def split(order):
    lines = order.selectExpr("type", "explode(sequence(1, {lines})) as n")
    return lines.selectExpr(
        "type", "to_json(named_struct('n', n, 'text', repeat('x', 600))) as data"
    )


spark = session(master="local[2]", config={{"spark.driver.memory": "512m"}})
with connect({url!r}) as store:
    summary = Runner(pipe, store, spark).run_until_idle()
    print(summary.progress["split"].error, summary.progress["split"].messages_out)
"""


def test_four_messages_that_become_over_a_million(harness: Harness) -> None:
    harness.write("order", 1, 2, 3, 4)
    url = harness.store.settings.conninfo()
    code = textwrap.dedent(_RUN).format(lines=LINES, url=url)

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ)
    )

    assert done.stdout.strip() == f"None {4 * LINES}", done.stderr[-2000:]


@pytest.mark.parametrize("count", [3, 5 * FEW])
def test_rows_come_out_in_the_order_of_the_frame(harness: Harness, count: int) -> None:
    pipe = pipeline()

    @pipe.stream(inputs="number", output="out")
    def split(number: DataFrame) -> DataFrame:
        lines = numbered(number).withColumn("line", f.expr(f"explode(sequence(1, {count}))"))
        return lines.selectExpr("'Line' as type", "struct(n * 10000 + line as n) as data")

    harness.write("number", 0, 1, 2)
    harness.steps(pipe)

    expected = [n * 10000 + line for n in range(3) for line in range(1, count + 1)]
    assert harness.numbers("out") == expected


def test_errors_among_many_rows_and_among_few(harness: Harness) -> None:
    pipe = pipeline()

    @pipe.stream(inputs="number", output="out", errors="lost")
    def split(number: DataFrame) -> DataFrame:
        lines = numbered(number).withColumn("line", f.expr(f"explode(sequence(1, n * {FEW}))"))
        return lines.selectExpr(
            "id", "global_position", "'Line' as type", "struct(line as n) as data",
            "if(n = 2 and line = 5, 'wrong', null) as error",
        )  # fmt: skip

    harness.write("number", 0, 1, 2)
    [report] = harness.steps(pipe)

    assert harness.numbers("lost") == [2]
    assert (report.messages_out, report.failed) == (2 + 3 * FEW - 1, 1)


@pytest.mark.parametrize(
    ("change", "known"),
    [
        ("n + 1 as n", True),
        ("explode(array(1, 2)) as n", False),
    ],
)
def test_what_is_known_of_a_frame_is_read_from_its_plan(
    harness: Harness, change: str, known: bool
) -> None:
    pipe, found = pipeline(), []

    @pipe.stream(inputs="number", output="out")
    def look(number: DataFrame) -> None:
        found.append(is_known_to_be_small(numbered(number).selectExpr(change), DRIVER_ROWS))

    harness.write("number", 1)
    harness.steps(pipe)

    assert found == [known]
