"""Running a pipeline: all processors side by side, until all is done or until it is stopped."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import islice
from threading import Event, Thread

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import StepFailed, ValidationError
from penstock.pipeline import Pipeline, Runner, StepReport, Summary
from tests.pipeline.steps.chains import chain
from tests.pipeline.steps.workshop import Workshop, numbered, renumbered


@pytest.fixture
def follow(workshop: Workshop) -> Iterator[Callable[..., Following]]:
    """Follow a pipeline until the end of the test."""
    following: list[Following] = []

    def start(pipe: Pipeline) -> Following:
        following.append(Following(pipe, workshop))
        return following[-1]

    yield start
    for one in following:
        one.stop()


class Following:
    """A run of `follow` in a thread of its own."""

    def __init__(self, pipe: Pipeline, workshop: Workshop) -> None:
        self.reports: list[StepReport] = []
        self.summary: Summary | None = None
        self.runner = Runner(pipe, workshop.store, workshop.spark, on_step=self.reports.append)
        self._thread = Thread(target=self._run)
        self._thread.start()

    def stop(self) -> Summary:
        self.runner.stop()
        self._thread.join()
        assert self.summary is not None
        return self.summary

    def _run(self) -> None:
        self.summary = self.runner.follow()


def test_a_store_in_the_place_of_the_pipeline_is_refused_by_name(workshop: Workshop) -> None:
    with pytest.raises(ValidationError, match="pipeline must be a Pipeline"):
        Runner(workshop.store, chain(), workshop.spark)  # type: ignore[arg-type]


class TestOnce:
    def test_all_that_is_there_goes_all_the_way(self, workshop: Workshop) -> None:
        workshop.write("q0", *range(5))

        summary = workshop.run(chain())

        assert workshop.numbers("q3") == [3, 4, 5, 6, 7]
        assert summary.succeeded
        counted = {one.processor: (one.messages_in, one.messages_out) for one in
                   summary.progress.values()}  # fmt: skip
        assert counted == {"q0_on": (5, 5), "q1_on": (5, 5), "q2_on": (5, 5)}
        assert summary.progress["q0_on"].steps == 3

    def test_there_may_be_nothing_to_do(self, workshop: Workshop) -> None:
        summary = workshop.run(chain())

        assert summary.succeeded
        assert [one.steps for one in summary.progress.values()] == [0, 0, 0]

    def test_what_comes_from_outside_meanwhile_is_left_for_the_next_run(
        self, workshop: Workshop
    ) -> None:
        pipe = Pipeline("endless")
        pipe.queue("number")

        @pipe.stream(inputs="number", output="out")
        def copy(number: DataFrame) -> DataFrame:
            workshop.write("number", 1 + len(workshop.numbers("number")))
            return renumbered(numbered(number))

        workshop.write("number", 1)
        workshop.run(pipe)
        workshop.run(pipe)

        assert workshop.numbers("out") == [1, 2]
        assert workshop.numbers("number") == [1, 2, 3]

    def test_a_source_feeds_the_others_in_the_same_run(
        self, workshop: Workshop, spark: SparkSession
    ) -> None:
        pipe = chain()
        del pipe.queues["q0"]

        @pipe.source(output="q0")
        def bring(spark: SparkSession) -> DataFrame:
            row = ("Numbered", '{"n": 7}')
            return spark.createDataFrame([row], "type string, data string")

        workshop.run(pipe)
        workshop.run(pipe)

        assert workshop.numbers("q3") == [10]

    def test_a_processor_that_fails_stops_and_the_others_go_on(self, workshop: Workshop) -> None:
        pipe = chain(2)

        @pipe.sink(inputs="q1")
        def broken(q1: DataFrame) -> None:
            raise RuntimeError("no paper")

        workshop.write("q0", 1, 2, 3)
        summary = workshop.run(pipe)

        assert workshop.numbers("q2") == [3, 4, 5]
        assert not summary.succeeded
        error = summary.progress["broken"].error
        assert isinstance(error, StepFailed)
        assert error.reason == "RuntimeError: no paper"
        assert workshop.status(pipe, "broken").error == "RuntimeError: no paper"

    def test_a_step_that_another_run_has_finished_is_not_the_end(self, workshop: Workshop) -> None:
        pipe = Pipeline("shop")
        pipe.queue("number")
        calls = []

        @pipe.stream(inputs="number", output="out")
        def copy(number: DataFrame) -> DataFrame:
            calls.append(1)
            if len(calls) == 1:
                workshop.step(pipe)  # another run, which lost its lock, and wins
            return renumbered(numbered(number))

        @pipe.stream(inputs="out", output="end")
        def copy_again(out: DataFrame) -> DataFrame:
            return renumbered(numbered(out))

        workshop.write("number", 1, 2)
        summary = workshop.run(pipe)

        assert summary.succeeded
        assert workshop.numbers("end") == [1, 2]
        assert len(calls) == 2


class TestFollow:
    def test_messages_are_processed_as_they_come_until_it_is_stopped(
        self, workshop: Workshop, follow: Callable[..., Following]
    ) -> None:
        following = follow(chain(2))

        workshop.write("q0", 1)
        first = next(iter(workshop.store.follow_category("q2")))
        workshop.write("q0", 2)
        both = list(islice(workshop.store.follow_category("q2"), 2))

        summary = following.stop()
        assert first.data == {"n": 3}
        assert [one.data["n"] for one in both] == [3, 4]
        assert summary.succeeded

    def test_to_stop_is_to_finish_the_step_in_hand(
        self, workshop: Workshop, follow: Callable[..., Following]
    ) -> None:
        begun, go_on = Event(), Event()
        pipe = Pipeline("slow")
        pipe.queue("number")

        @pipe.stream(inputs="number", output="out", limit=1)
        def copy(number: DataFrame) -> DataFrame:
            begun.set()
            go_on.wait()
            return renumbered(numbered(number))

        workshop.write("number", 1, 2)
        following = follow(pipe)
        begun.wait()
        following.runner.stop()
        go_on.set()

        summary = following.stop()
        assert workshop.numbers("out") == [1]
        assert summary.progress["copy"].steps == 1

    def test_a_source_is_asked_again_until_it_has_something(
        self, workshop: Workshop, follow: Callable[..., Following], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("penstock.pipeline.runner.SOURCE_LOOKS_AGAIN", 0.01)
        there = Event()
        pipe = Pipeline("shop")
        asked = []

        @pipe.source(output="number")
        def bring(spark: SparkSession) -> DataFrame | None:
            asked.append(1)
            if len(asked) == 3:
                there.set()
            row = ("Numbered", '{"n": 7}')
            frame = spark.createDataFrame([row], "type string, data string")
            return frame if there.is_set() else None

        follow(pipe)

        assert next(iter(workshop.store.follow_category("number"))).data == {"n": 7}
        assert len(asked) == 3


def test_a_mistake_in_what_shows_the_progress_does_not_lose_messages(
    workshop: Workshop, caplog: pytest.LogCaptureFixture
) -> None:
    def show(report: StepReport) -> None:
        raise ValueError("no terminal")

    workshop.write("q0", 1)
    caplog.set_level(logging.CRITICAL)
    summary = Runner(chain(2), workshop.store, workshop.spark, on_step=show).once(check=False)

    assert not summary.succeeded
    assert workshop.numbers("q1") == [2]
    workshop.run(chain(2))
    assert workshop.numbers("q2") == [3]
