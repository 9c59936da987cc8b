"""A run that goes on until it is stopped, in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from threading import Thread
from typing import Any

import pytest

from penstock.errors import PenstockError, RunFailed
from penstock.pipeline import Pipeline, StepReport, Summary
from tests.pipeline.steps.running import Harness

Follow = Callable[..., "Following"]


class Following:
    """A run, and how it ended."""

    def __init__(self, pipe: Pipeline, harness: Harness, **options: Any) -> None:
        self.reports: list[StepReport] = []
        self.summary: Summary | None = None
        self.error: PenstockError | None = None
        self.runner = harness.runner(pipe, on_step=self.reports.append)
        self._options = options
        self._thread = Thread(target=self._run)
        self._thread.start()

    def stop(self) -> Summary:
        """Stop it, and return what it has done."""
        self.runner.stop()
        self.join()
        assert self.summary is not None
        return self.summary

    def stop_failing(self) -> Mapping[str, str]:
        """Stop it while a processor fails, and return what each failed with."""
        self.end()
        assert isinstance(self.error, RunFailed)
        return self.error.errors

    def join(self) -> None:
        """Wait until it ends by itself."""
        self._thread.join()

    def end(self) -> None:
        """Stop it, however it ends."""
        while self._thread.is_alive():
            self.runner.stop()
            self._thread.join(0.05)

    def _run(self) -> None:
        try:
            self.summary = self.runner.run(**self._options)
        except PenstockError as error:
            self.error = error


@pytest.fixture
def follow(harness: Harness) -> Iterator[Follow]:
    """Run a pipeline until the end of the test."""
    following: list[Following] = []

    def start(pipe: Pipeline, **options: Any) -> Following:
        following.append(Following(pipe, harness, **options))
        return following[-1]

    yield start
    for one in following:
        one.end()
