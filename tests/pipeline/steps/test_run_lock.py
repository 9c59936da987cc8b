"""One run of a pipeline at a time: a second one is refused, or waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread

import pytest

import penstock
from penstock.errors import PipelineRunning
from penstock.pipeline import Runner
from penstock.pipeline.connection import lock_run
from tests.pipeline.steps.chains import chain
from tests.pipeline.steps.running import Harness


class TestOneAtATime:
    def test_a_second_run_is_refused_with_the_name_of_the_first(self, harness: Harness) -> None:
        with lock_run_of(harness, "chain"), pytest.raises(PipelineRunning) as caught:
            harness.run(chain())

        assert caught.value.pipeline == "chain"
        assert caught.value.holder.startswith("penstock run chain on ")
        assert "server process" in caught.value.holder
        assert harness.run(chain()).succeeded

    def test_a_run_elsewhere_is_nobodys_business(
        self, harness: Harness, new_database: Callable[[str], str]
    ) -> None:
        with penstock.connect(new_database("penstock")) as store:
            elsewhere = Harness(store, harness.spark)
            with lock_run_of(elsewhere, "chain"), lock_run_of(harness, "other"):
                assert harness.run(chain()).succeeded

    def test_who_waits_runs_when_the_first_has_ended(self, harness: Harness) -> None:
        harness.write("q0", 1)
        lock = lock_run(harness.database, "chain")
        runner = Runner(chain(1), harness.store, harness.spark)
        waiting = Thread(target=runner.run_until_idle, kwargs={"wait": True})
        waiting.start()
        before = harness.numbers("q1")

        lock.release()
        waiting.join()

        assert (before, harness.numbers("q1")) == ([], [2])

    def test_who_waits_can_be_stopped(self, harness: Harness) -> None:
        runner = Runner(chain(1), harness.store, harness.spark)
        caught: list[BaseException] = []

        def run() -> None:
            try:
                runner.run_until_idle(wait=True)
            except PipelineRunning as error:
                caught.append(error)

        with lock_run_of(harness, "chain"):
            waiting = Thread(target=run)
            waiting.start()
            while waiting.is_alive():
                runner.stop()
                waiting.join(0.01)

        assert len(caught) == 1

    def test_to_begin_from_scratch_is_refused_too(self, harness: Harness) -> None:
        runner = Runner(chain(1), harness.store, harness.spark)

        with lock_run_of(harness, "chain"), pytest.raises(PipelineRunning):
            runner.from_scratch()


@contextmanager
def lock_run_of(harness: Harness, pipeline: str) -> Iterator[None]:
    """Hold the lock of a pipeline, as another run does."""
    lock = lock_run(harness.database, pipeline)
    yield
    lock.release()
