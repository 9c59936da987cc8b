"""Running a pipeline: all processors side by side, until all is done or until it is stopped."""

from __future__ import annotations

import logging
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import islice
from threading import Event

import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import DatabaseUnreachable, RunFailed, StepFailed, ValidationError
from penstock.pipeline import Pipeline, Runner, StepReport, Timing
from penstock.pipeline.processor_loop import Retries
from tests.pipeline.steps.chains import chain
from tests.pipeline.steps.following import Follow
from tests.pipeline.steps.following import follow as follow  # a fixture
from tests.pipeline.steps.running import Harness, numbered, renumbered
from tests.spark.faults.waiting import wait_until, wait_until_blocked

SECONDS = 120


def test_a_store_in_the_place_of_the_pipeline_is_refused_by_name(harness: Harness) -> None:
    with pytest.raises(ValidationError, match="pipeline must be a Pipeline"):
        Runner(harness.store, chain(), harness.spark)  # type: ignore[arg-type]


@pytest.mark.parametrize("rows", [-1, 0.5, None])
def test_a_number_of_rows_that_makes_no_sense_is_refused(harness: Harness, rows: object) -> None:
    with pytest.raises(ValidationError, match="driver_rows"):
        Runner(chain(1), harness.store, harness.spark, driver_rows=rows)  # type: ignore[arg-type]


class TestRunUntilIdle:
    def test_all_that_is_there_goes_all_the_way(self, harness: Harness) -> None:
        harness.write("q0", *range(5))

        summary = harness.run(chain())

        assert harness.numbers("q3") == [3, 4, 5, 6, 7]
        assert summary.succeeded
        counted = {one.processor: (one.messages_in, one.messages_out) for one in
                   summary.progress.values()}  # fmt: skip
        assert counted == {"q0_on": (5, 5), "q1_on": (5, 5), "q2_on": (5, 5)}
        assert summary.progress["q0_on"].steps == 3

    def test_there_may_be_nothing_to_do(self, harness: Harness) -> None:
        summary = harness.run(chain())

        assert summary.succeeded
        assert [one.steps for one in summary.progress.values()] == [0, 0, 0]

    def test_what_comes_from_outside_meanwhile_is_left_for_the_next_run(
        self, harness: Harness
    ) -> None:
        pipe = Pipeline("endless")
        pipe.schema("number")

        @pipe.stream(inputs="number", output="out")
        def copy(number: DataFrame) -> DataFrame:
            harness.write("number", 1 + len(harness.numbers("number")))
            return renumbered(numbered(number))

        harness.write("number", 1)
        harness.run(pipe)
        harness.run(pipe)

        assert harness.numbers("out") == [1, 2]
        assert harness.numbers("number") == [1, 2, 3]

    def test_a_source_feeds_the_others_in_the_same_run(
        self, harness: Harness, spark: SparkSession
    ) -> None:
        pipe = chain()
        del pipe.schemas["q0"]

        @pipe.source(output="q0")
        def bring(spark: SparkSession) -> DataFrame:
            row = ("Numbered", '{"n": 7}')
            return spark.createDataFrame([row], "type string, data string")

        harness.run(pipe)
        harness.run(pipe)

        assert harness.numbers("q3") == [10]

    def test_a_processor_that_fails_stops_and_the_others_go_on(self, harness: Harness) -> None:
        pipe = chain(2)

        @pipe.sink(inputs="q1")
        def broken(q1: DataFrame) -> None:
            raise RuntimeError("no paper")

        harness.write("q0", 1, 2, 3)
        summary = harness.run(pipe)

        assert harness.numbers("q2") == [3, 4, 5]
        assert not summary.succeeded
        error = summary.progress["broken"].error
        assert isinstance(error, StepFailed)
        assert error.reason == "RuntimeError: no paper"
        assert harness.status(pipe, "broken").error == "RuntimeError: no paper"

    def test_a_step_that_another_run_has_finished_is_not_the_end(self, harness: Harness) -> None:
        pipe = Pipeline("shop")
        pipe.schema("number")
        calls = []

        @pipe.stream(inputs="number", output="out")
        def copy(number: DataFrame) -> DataFrame:
            calls.append(1)
            if len(calls) == 1:
                harness.step(pipe)  # another run, which lost its lock, and wins
            return renumbered(numbered(number))

        @pipe.stream(inputs="out", output="end")
        def copy_again(out: DataFrame) -> DataFrame:
            return renumbered(numbered(out))

        harness.write("number", 1, 2)
        summary = harness.run(pipe)

        assert summary.succeeded
        assert harness.numbers("end") == [1, 2]
        assert len(calls) == 2


class TestRun:
    def test_messages_are_processed_as_they_come_until_it_is_stopped(
        self, harness: Harness, follow: Follow
    ) -> None:
        following = follow(chain(2))

        harness.write("q0", 1)
        first = next(iter(harness.store.follow_category("q2")))
        harness.write("q0", 2)
        both = list(islice(harness.store.follow_category("q2"), 2))

        summary = following.stop()
        assert first.data == {"n": 3}
        assert [one.data["n"] for one in both] == [3, 4]
        assert summary.succeeded

    def test_to_stop_is_to_finish_the_step_in_hand(self, harness: Harness, follow: Follow) -> None:
        begun, go_on = Event(), Event()
        pipe = Pipeline("slow")
        pipe.schema("number")

        @pipe.stream(inputs="number", output="out", limit=1)
        def copy(number: DataFrame) -> DataFrame:
            begun.set()
            go_on.wait()
            return renumbered(numbered(number))

        harness.write("number", 1, 2)
        following = follow(pipe)
        begun.wait()
        following.runner.stop()
        go_on.set()

        summary = following.stop()
        assert harness.numbers("out") == [1]
        assert summary.progress["copy"].steps == 1

    def test_a_source_is_asked_again_until_it_has_something(
        self, harness: Harness, follow: Follow
    ) -> None:
        harness.timing = Timing(source_poll_interval=0.01)
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

        assert next(iter(harness.store.follow_category("number"))).data == {"n": 7}
        assert len(asked) == 3


class TestFailing:
    """A processor whose function fails."""

    @pytest.fixture
    def broken(self) -> Broken:
        return Broken()

    def test_in_run_until_idle_it_is_logged_and_raised(
        self, harness: Harness, broken: Broken, caplog: pytest.LogCaptureFixture
    ) -> None:
        harness.write("q0", 1)

        with pytest.raises(RunFailed) as caught:
            Runner(broken.pipe, harness.store, harness.spark).run_until_idle()

        assert set(caught.value.errors) == {"broken"}
        assert isinstance(caught.value.__cause__, StepFailed)
        assert str(caught.value).startswith("pipeline chain: 1 processors failed: broken: ")
        (logged,) = [one for one in caplog.records if one.levelno == logging.ERROR]
        assert "failed: RuntimeError: no paper" in logged.getMessage()
        assert harness.numbers("q2") == [3]

    def test_in_run_it_is_tried_again_and_the_others_go_on(
        self,
        harness: Harness,
        broken: Broken,
        follow: Follow,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        harness.timing = Timing(retry_delay=0.001)
        harness.write("q0", 1)
        following = follow(broken.pipe)
        first = next(iter(harness.store.follow_category("q2")))
        assert broken.failed_thrice.wait(SECONDS)
        logged = [one for one in caplog.records if one.levelno == logging.ERROR]

        broken.paper.set()
        assert broken.printed.wait(SECONDS)

        summary = following.stop()
        assert first.data == {"n": 3}
        assert "failed: RuntimeError: no paper; it is tried again in " in logged[0].getMessage()
        assert summary.succeeded
        assert summary.progress["broken"].messages_in == 1
        assert harness.status(broken.pipe, "broken").error is None

    def test_one_that_stays_broken_ends_the_run_with_an_error(
        self, harness: Harness, broken: Broken, follow: Follow
    ) -> None:
        harness.write("q0", 1)

        following = follow(broken.pipe, retry_for=0)
        following.join()

        assert isinstance(following.error, RunFailed)
        assert set(following.error.errors) == {"broken"}

    def test_a_table_that_nobody_fills_is_not_waited_for_while_it_fails(
        self, harness: Harness, follow: Follow
    ) -> None:
        pipe = Pipeline("shop")
        pipe.schema("number")

        @pipe.source(output="word")
        def load(spark: SparkSession) -> DataFrame:
            raise RuntimeError("no file")

        @pipe.stream(inputs="number", tables="word", output="out")
        def copy(number: DataFrame, word: DataFrame) -> DataFrame:
            return renumbered(numbered(number))

        harness.write("number", 1)
        following = follow(pipe)

        assert next(iter(harness.store.follow_category("out"))).data == {"n": 1}
        assert set(following.stop_failing()) == {"load"}

    def test_a_failure_that_is_over_does_not_count_against_the_next(
        self, harness: Harness, follow: Follow
    ) -> None:
        harness.timing = Timing(retry_delay=0.0, outage_timeout=0.1, source_poll_interval=0.2)
        pipe, asked = Pipeline("shop"), []

        @pipe.source(output="number")
        def bring(spark: SparkSession) -> DataFrame | None:
            asked.append(1)
            if len(asked) in (1, 3):  # in between, longer than its patience, it had nothing to do
                raise DatabaseUnreachable("there", "it is gone")
            row = ("Numbered", '{"n": 7}')
            frame = spark.createDataFrame([row], "type string, data string")
            return frame if len(asked) == 4 else None

        following = follow(pipe, retry_for=0)

        assert next(iter(harness.store.follow_category("number"))).data == {"n": 7}
        assert following.stop().succeeded

    def test_it_is_tried_again_ever_more_seldom(self) -> None:
        pauses, error = [0.0], StepFailed("p", "no paper", "here")
        retries = Retries(300, clock=lambda: sum(pauses))

        pauses.extend(retries.pause_after(error) for _ in range(9))

        assert pauses == [0, 1, 2, 4, 8, 16, 32, 60, 60, 60]
        with pytest.raises(StepFailed):
            retries.pause_after(error)
        retries.succeed()
        assert retries.pause_after(error) == 1
        with pytest.raises(StepFailed):
            Retries(0).pause_after(error)

    @pytest.mark.parametrize("seconds", [-1, float("nan"), "5", None])
    def test_a_time_that_makes_no_sense_is_refused(self, harness: Harness, seconds: object) -> None:
        runner = Runner(chain(1), harness.store, harness.spark)

        with pytest.raises(ValidationError, match="retry_for"):
            runner.run(retry_for=seconds)  # type: ignore[arg-type]


class Broken:
    """A chain with a sink that fails until it gets paper."""

    def __init__(self) -> None:
        self.paper, self.failed_thrice, self.printed = Event(), Event(), Event()
        self.pipe = chain(2)
        failures: list[int] = []

        @self.pipe.sink(inputs="q1")
        def broken(q1: DataFrame) -> None:
            if self.paper.is_set():
                self.printed.set()
                return
            failures.append(1)
            if len(failures) == 3:
                self.failed_thrice.set()
            raise RuntimeError("no paper")


def test_the_seconds_of_a_step_include_its_commit(harness: Harness, database_url: str) -> None:
    pipe = chain(1)
    harness.write("q0", 1)
    reports: list[StepReport] = []
    runner = Runner(pipe, harness.store, harness.spark, on_step=reports.append)
    runner.run_until_idle()
    harness.write("q0", 2)

    with ThreadPoolExecutor(1) as thread, psycopg.connect(database_url) as other:
        other.execute("select from penstock.processors for update")  # the commit waits for it
        running = thread.submit(runner.run_until_idle)
        wait_until_blocked(database_url, 1, running)
        began = time.monotonic()
        wait_until(database_url, "select true")
        waited = time.monotonic() - began
        other.rollback()
        summary = running.result()

    assert reports[-1].seconds > waited
    assert summary.progress["q0_on"].seconds > waited
    assert (harness.status(pipe).last_step_seconds or 0) >= round(waited, 3)


def test_a_mistake_in_what_shows_the_progress_does_not_lose_messages(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    def show(report: StepReport) -> None:
        raise ValueError("no terminal")

    harness.write("q0", 1)
    caplog.set_level(logging.CRITICAL)
    summary = Runner(chain(2), harness.store, harness.spark, on_step=show).run_until_idle(
        check=False
    )

    assert not summary.succeeded
    assert harness.numbers("q1") == [2]
    harness.run(chain(2))
    assert harness.numbers("q2") == [3]


class TestRunOnce:
    def test_each_processor_runs_at_most_one_step(self, harness: Harness) -> None:
        harness.write("q0", *range(5))
        runner = harness.runner(chain(1))

        first = runner.run_once()
        between = harness.numbers("q1")
        second, third, fourth = (runner.run_once() for _ in range(3))

        assert between == [1, 2]
        steps = [one.progress["q0_on"].steps for one in (first, second, third, fourth)]
        assert steps == [1, 1, 1, 0]
        assert harness.numbers("q1") == [1, 2, 3, 4, 5]

    def test_a_processor_that_fails_is_raised(self, harness: Harness) -> None:
        broken = Broken()
        harness.write("q1", 1)

        with pytest.raises(RunFailed):
            harness.runner(broken.pipe).run_once()


def test_a_pipeline_runs_itself(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    broken = Broken()
    harness.write("q0", 1)

    with pytest.raises(RunFailed):
        broken.pipe.run(harness.store, harness.spark)
    summary = broken.pipe.run(harness.store, harness.spark, check=False)
    broken.paper.set()

    assert isinstance(summary.errors["broken"], StepFailed)
    assert [one.levelno for one in caplog.records].count(logging.ERROR) == 2
    assert broken.pipe.run(harness.store, harness.spark).succeeded
    assert harness.numbers("q2") == [3]


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("how", ["run", "run_until_idle"])
def test_a_signal_ends_a_run_after_the_step_under_way(
    harness: Harness, how: str, sent: signal.Signals
) -> None:
    before = signal.getsignal(sent)
    pipe = Pipeline("slow")
    pipe.schema("number")

    @pipe.stream(inputs="number", output="out", limit=1)
    def copy(number: DataFrame) -> DataFrame:
        os.kill(os.getpid(), sent)
        return renumbered(numbered(number))

    harness.write("number", 1, 2)
    summary = getattr(harness.runner(pipe), how)()

    assert summary.progress["copy"].steps == 1
    assert harness.numbers("out") == [1]
    assert signal.getsignal(sent) is before


@pytest.mark.parametrize("retry_for", [0, timedelta(0)])
def test_a_duration_is_seconds_or_a_timedelta(
    harness: Harness, retry_for: float | timedelta
) -> None:
    harness.write("q0", 1)

    with pytest.raises(RunFailed):
        harness.runner(Broken().pipe).run(retry_for=retry_for)
