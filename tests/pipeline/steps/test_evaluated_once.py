"""What a function returns is evaluated once, so that a row is in the outputs it was put into."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from penstock.pipeline import Delivery
from tests.pipeline.steps.running import Harness, numbered, pipeline, renumbered

NUMBERS = tuple(range(40))


def drawn(frame: DataFrame, how: str) -> DataFrame:
    """Return a frame with a column that differs each time it is evaluated."""
    if how == "rand":
        return numbered(frame).repartition(3).withColumn("side", f.rand())
    chance = f.udf(lambda n: random.SystemRandom().random(), "double").asNondeterministic()
    return numbered(frame).withColumn("side", chance("n"))


@pytest.mark.parametrize("how", ["rand", "python"])
def test_a_row_goes_to_exactly_one_of_two_outputs(harness: Harness, shape: str, how: str) -> None:
    pipe = pipeline()

    @pipe.stream(inputs="number", output=["left", "right"])
    def toss(number: DataFrame) -> dict[str, DataFrame]:
        tossed = drawn(number, how)
        return {
            "left": renumbered(tossed.where("side < 0.5")),
            "right": renumbered(tossed.where("side >= 0.5")),
        }

    harness.write("number", *NUMBERS)
    [report] = harness.steps(pipe)

    assert sorted(harness.numbers("left") + harness.numbers("right")) == list(NUMBERS)
    assert report.messages_out == len(NUMBERS)


def test_an_output_and_an_upsert_have_the_same_rows(harness: Harness) -> None:
    pipe = pipeline()

    @pipe.stream(inputs="number", output="out")
    def toss(number: DataFrame, delivery: Delivery) -> DataFrame:
        kept = drawn(number, "python").where("side < 0.5")
        delivery.upsert(kept.select("n"), "kept", key="n")
        return renumbered(kept)

    harness.write("number", *NUMBERS)
    harness.steps(pipe)

    assert sorted(n for (n,) in harness.rows("select n from kept")) == sorted(
        harness.numbers("out")
    )


def test_nothing_stays_persisted(harness: Harness) -> None:
    pipe = pipeline()

    @pipe.stream(inputs="number", output=["left", "right"])
    def toss(number: DataFrame) -> dict[str, DataFrame]:
        tossed = drawn(number, "rand")
        return {"left": renumbered(tossed), "right": renumbered(tossed)}

    harness.write("number", *NUMBERS)
    harness.steps(pipe)

    context = harness.spark.sparkContext._jsc
    assert context is not None
    assert context.getPersistentRDDs().size() == 0
