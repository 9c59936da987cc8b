"""Two runs at the same step: one of them commits it, and the other one gives up."""

from __future__ import annotations

from threading import Barrier

import pytest
from pyspark.sql import DataFrame

from penstock.database.server_errors import typed_errors
from penstock.errors import StepSuperseded
from penstock.pipeline import Delivery, Pipeline, StepReport
from penstock.pipeline.attempt import Step, StepContext, StepResult
from penstock.pipeline.restart import restart
from penstock.pipeline.state import open_processor
from penstock.pipeline.step import begin, commit, run_step
from tests.pipeline.steps.running import Harness, numbered, renumbered
from tests.racing import at_once


def meeting(barrier: Barrier) -> Pipeline:
    """Return a pipeline whose function waits until the other run is in it, too."""
    pipe = Pipeline("shop")
    pipe.schema("number")

    @pipe.stream(inputs="number", output="out")
    def copy(number: DataFrame) -> DataFrame:
        barrier.wait()
        return renumbered(numbered(number))

    @pipe.sink(inputs="number")
    def total(number: DataFrame, delivery: Delivery) -> None:
        barrier.wait()
        sums = numbered(number).groupBy().sum("n").selectExpr("1 as k", "`sum(n)` as n")
        delivery.upsert(sums, "totals", key="k", add=["n"])

    return pipe


def race(harness: Harness, pipe: Pipeline, processor: str) -> list[object]:
    """Run the same step twice at once; return what became of each."""

    def run(context: StepContext) -> StepReport | None:
        with typed_errors("here"):
            return run_step(context)

    first, second = harness.context(pipe, processor), harness.context(pipe, processor)
    return list(at_once(lambda: run(first), lambda: run(second)))


@pytest.mark.parametrize("processor", ["copy", "total"])
def test_one_commits_and_the_other_is_superseded(harness: Harness, processor: str) -> None:
    pipe = meeting(Barrier(2))
    harness.write("number", 1, 2)

    became = race(harness, pipe, processor)

    if processor == "copy":
        assert harness.numbers("out") == [1, 2]
    else:
        assert harness.rows("select n from totals") == [(3,)]
    (lost,) = [one for one in became if isinstance(one, Exception)]
    assert isinstance(lost, StepSuperseded)
    assert lost.processor == processor
    assert lost.retryable
    attempts = [one for one in harness.records(pipe, processor) if one.type.endswith("Attempt")]
    assert len(attempts) == 1


def test_who_begins_another_step_meanwhile_makes_the_first_give_up(harness: Harness) -> None:
    pipe = meeting(Barrier(1))
    harness.write("number", 1, 2)
    late, early = harness.context(pipe), harness.context(pipe)
    begun = begin(late, late.connection.run(open_processor("shop", "copy", "stream")))
    assert begun is not None
    early.remembered.failed = begun.hash
    early.remembered.suspect = 2  # so it begins a smaller step
    begin(early, early.connection.run(open_processor("shop", "copy", "stream")))

    with pytest.raises(StepSuperseded, match="not the last one"):
        commit(Step(late, begun, {}, 0.0), StepResult())

    harness.steps(pipe, "copy")
    assert harness.numbers("out") == [1, 2]


def test_who_starts_from_scratch_meanwhile_makes_the_step_give_up(harness: Harness) -> None:
    pipe = Pipeline("shop")
    pipe.schema("number")

    @pipe.stream(inputs="number", output="out")
    def copy(number: DataFrame) -> DataFrame:
        if harness.status(pipe).generation == 0:
            restart(harness.context(pipe).connection, pipe)
        return renumbered(numbered(number))

    harness.write("number", 1)
    with pytest.raises(StepSuperseded, match="started from scratch"):
        harness.step(pipe)

    harness.steps(pipe)
    assert harness.numbers("out") == [1]
