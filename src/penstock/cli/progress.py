"""The progress of a pipeline while it runs: messages in and out, lag and time of each processor."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import psycopg
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

import penstock
from penstock.cli.printing import console
from penstock.errors import PenstockError
from penstock.pipeline import Pipeline, StepReport
from penstock.pipeline.status import processors


class ShownProgress:
    """Shows the progress of a run on stderr: bars in a terminal, a line for each step elsewhere."""

    def __init__(self, pipeline: Pipeline, store: penstock.Store) -> None:
        self._console = console(stderr=True)
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn(
                "out {task.fields[out]:,}  step {task.fields[took]:.2f} s{task.fields[more]}"
            ),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._tasks = {
            name: self._bars.add_task(name, total=0, out=0, took=0.0, more="")
            for name in pipeline.processors
        }
        self._pipeline = pipeline.name
        self._store = store

    def step(self, report: StepReport) -> None:
        """Show what a step did."""
        if not self._console.is_terminal:
            self._console.print(_line(report), soft_wrap=True)
            return
        task = self._bars.tasks[self._tasks[report.processor]]
        done = int(task.completed) + report.messages_in
        fields: dict[str, Any] = {
            "out": task.fields["out"] + report.messages_out,
            "took": report.seconds,
            "more": "  searching for a bad message" if report.split else "",
        }
        total = done + self._lag(report.processor)
        self._bars.update(self._tasks[report.processor], completed=done, total=total, **fields)

    def _lag(self, processor: str) -> int:
        try:
            found = {(one.pipeline, one.processor): one.lag for one in processors(self._store)}
        except (PenstockError, psycopg.Error):
            return 0  # the run goes on without this number
        return found.get((self._pipeline, processor), 0)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()


def _line(report: StepReport) -> str:
    if report.split:
        return f"{report.processor}: a message cannot be processed; searching for it"
    failed = f", {report.failed} to the errors queue" if report.failed else ""
    return (
        f"{report.processor}: {report.messages_in:,} in, {report.messages_out:,} out{failed}, "
        f"{report.seconds:.2f} s"
    )
