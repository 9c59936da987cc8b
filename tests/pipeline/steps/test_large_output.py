"""A step that reads little may make much: what the driver holds does not grow with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.pipeline import Pipeline
from penstock.pipeline.frames import DRIVER_ROWS
from penstock.pipeline.outputs import FEW, is_known_to_be_small
from tests.pipeline.steps.running import Harness, numbered, pipeline

LIMIT = "spark.driver.maxResultSize"


@pytest.fixture
def one_megabyte(spark: SparkSession) -> Iterator[None]:
    """End each job whose tasks return more than a megabyte to the driver."""
    settings = spark.sparkContext._jsc.sc().conf()  # those of the context, read for each job
    settings.set(LIMIT, "1m")
    yield
    settings.remove(LIMIT)


@pytest.mark.usefixtures("one_megabyte")
def test_four_messages_that_become_many_megabytes(harness: Harness) -> None:
    count = 10_000
    pipe = Pipeline("shop")
    pipe.schema("order")

    @pipe.stream(inputs="order", output="line")
    def split(order: DataFrame) -> DataFrame:
        lines = order.selectExpr("type", f"explode(sequence(1, {count})) as n")
        # hashes, since Spark compresses what tasks return
        hashes = "transform(sequence(1, 4), i -> sha2(concat(n, '/', i), 512))"
        return lines.selectExpr("type", f"to_json(named_struct('hashes', {hashes})) as data")

    harness.write("order", 1, 2, 3, 4)
    progress = harness.run(pipe).progress["split"]

    assert (progress.error, progress.messages_out) == (None, 4 * count)


@pytest.mark.usefixtures("one_megabyte")
def test_that_limit_ends_a_job_that_returns_its_rows(spark: SparkSession) -> None:
    rows = spark.range(10_000).selectExpr("id", "repeat('x', 600) as text")

    with pytest.raises(Py4JJavaError, match=LIMIT):
        rows.toArrow()


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
