"""One run of a pipeline at a time: a second one is refused, or waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread

import pytest

import penstock
from penstock.errors import PipelineRunning
from penstock.pipeline import Runner
from penstock.pipeline.run_lock import lock_run
from tests.pipeline.steps.chains import chain
from tests.pipeline.steps.running import Workshop


class TestOneAtATime:
    def test_a_second_run_is_refused_and_told_who_runs_it(self, workshop: Workshop) -> None:
        with lock_run_of(workshop, "chain"), pytest.raises(PipelineRunning) as caught:
            workshop.run(chain())

        assert caught.value.pipeline == "chain"
        assert caught.value.holder.startswith("penstock run chain on ")
        assert "server process" in caught.value.holder
        assert workshop.run(chain()).succeeded

    def test_a_run_elsewhere_is_nobodys_business(
        self, workshop: Workshop, new_database: Callable[[str], str]
    ) -> None:
        with penstock.connect(new_database("penstock")) as store:
            elsewhere = Workshop(store, workshop.spark)
            with lock_run_of(elsewhere, "chain"), lock_run_of(workshop, "other"):
                assert workshop.run(chain()).succeeded

    def test_who_waits_runs_when_the_first_has_ended(self, workshop: Workshop) -> None:
        workshop.write("q0", 1)
        lock = lock_run(workshop.place, "chain")
        runner = Runner(chain(1), workshop.store, workshop.spark)
        waiting = Thread(target=runner.once, kwargs={"wait": True})
        waiting.start()
        before = workshop.numbers("q1")

        lock.release()
        waiting.join()

        assert (before, workshop.numbers("q1")) == ([], [2])

    def test_who_waits_can_be_stopped(self, workshop: Workshop) -> None:
        runner = Runner(chain(1), workshop.store, workshop.spark)
        caught: list[BaseException] = []

        def run() -> None:
            try:
                runner.once(wait=True)
            except PipelineRunning as error:
                caught.append(error)

        with lock_run_of(workshop, "chain"):
            waiting = Thread(target=run)
            waiting.start()
            while waiting.is_alive():
                runner.stop()
                waiting.join(0.01)

        assert len(caught) == 1

    def test_to_begin_from_scratch_is_refused_too(self, workshop: Workshop) -> None:
        runner = Runner(chain(1), workshop.store, workshop.spark)

        with lock_run_of(workshop, "chain"), pytest.raises(PipelineRunning):
            runner.from_scratch()


@contextmanager
def lock_run_of(workshop: Workshop, pipeline: str) -> Iterator[None]:
    """Hold the lock of a pipeline, as another run does."""
    lock = lock_run(workshop.place, pipeline)
    yield
    lock.release()
