"""The progress of a pipeline while it runs: messages in and out, lag and time of each processor."""

from __future__ import annotations

import psycopg
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn

import penstock
from penstock.cli.printing import TerminalProgress
from penstock.errors import PenstockError
from penstock.pipeline import Pipeline, StepReport
from penstock.pipeline.status import processors


class ShownProgress(TerminalProgress):
    """Shows the progress of a run on stderr: bars in a terminal, a line for each step elsewhere."""

    def __init__(self, pipeline: Pipeline, store: penstock.Store) -> None:
        super().__init__(
            SpinnerColumn(),
            "{task.description}",
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            "out {task.fields[out]:,}  step {task.fields[took]:.2f} s{task.fields[more]}",
            transient=False,
        )
        self._bars = {
            name: self.add_task(name, total=0, out=0, took=0.0, more="")
            for name in pipeline.processors
        }
        self._pipeline = pipeline.name
        self._store = store

    def step(self, report: StepReport) -> None:
        """Show what a step did."""
        if not self.console.is_terminal:
            self.console.print(_line(report), soft_wrap=True)
            return
        bar = self.tasks[self._bars[report.processor]]
        done = int(bar.completed) + report.messages_in
        self.update(
            bar.id,
            completed=done,
            total=done + self._lag(report.processor),
            out=bar.fields["out"] + report.messages_out,
            took=report.seconds,
            more="  searching for a bad message" if report.split else "",
        )

    def _lag(self, processor: str) -> int:
        try:
            found = {(one.pipeline, one.processor): one.lag for one in processors(self._store)}
        except (PenstockError, psycopg.Error):
            return 0  # the run goes on without this number
        return found.get((self._pipeline, processor), 0)


def _line(report: StepReport) -> str:
    if report.split:
        return f"{report.processor}: a message cannot be processed; searching for it"
    failed = f", {report.failed} to the errors queue" if report.failed else ""
    return (
        f"{report.processor}: {report.messages_in:,} in, {report.messages_out:,} out{failed}, "
        f"{report.seconds:.2f} s"
    )
