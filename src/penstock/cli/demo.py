"""`penstock demo`: an example shop that uses every part of Penstock, on an embedded server."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TimeElapsedColumn

import penstock
from penstock.cli.pipelines import need_spark
from penstock.cli.printing import TerminalProgress, console, note, print_table

KEPT = Path("penstock-demo")


def demo(
    orders: Annotated[int, typer.Option(min=100, help="The number of orders.")] = 100_000,
    keep: Annotated[
        bool, typer.Option("--keep", help=f"Keep the database, files and report in {KEPT}/.")
    ] = False,
) -> None:
    """Run an example shop on Spark, kill it, recover it, and check the result.

    Takes one to two minutes. Runs on this machine, with an embedded PostgreSQL.
    """
    need_spark()
    from penstock.demo.report import report
    from penstock.demo.shop import pipe
    from penstock.demo.story import play
    from penstock.pipeline.drawing import as_svg

    with _folder(keep) as folder, penstock.connect(folder=folder / "database") as store:
        with _ShownProgress() as progress:
            story, findings, truth = play(store, folder, orders, progress)
        print_table(
            "check >expected >found result",
            (
                (name, f"{expected:,}", f"{found:,}", "ok" if expected == found else "WRONG")
                for name, expected, found in findings.checks
            ),
        )
        page = Path("penstock-demo.html") if not keep else folder / "report.html"
        page.write_text(report(story, findings, truth, as_svg(pipe)), encoding="utf-8")
    console().print(
        f"{truth.orders:,} orders, killed with -9 after {story.killed_at:,}, "
        f"done in {story.seconds:.0f} s. The report: {page}"
    )
    if keep:
        note(f"to explore it: penstock status --folder {folder / 'database'}")
    if not findings.all_correct:
        raise typer.Exit(1)


@contextmanager
def _folder(keep: bool) -> Iterator[Path]:
    """Create an empty folder; one to keep replaces that of the last run."""
    if keep:
        shutil.rmtree(KEPT, ignore_errors=True)
        KEPT.mkdir()
        yield KEPT.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as folder:
        yield Path(folder)


class _ShownProgress(TerminalProgress):
    """Shows the progress: bars in a terminal, lines elsewhere."""

    def __init__(self) -> None:
        columns = "{task.description}", BarColumn(bar_width=30), MofNCompleteColumn()
        super().__init__(*columns, TimeElapsedColumn(), transient=False)
        self._bars: dict[str, TaskID] = {}
        self._tenths: dict[str, int] = {}

    def __call__(self, what: str, done: int, total: int) -> None:
        if total == 0:
            self.console.print(what, style="bold")
        elif self.console.is_terminal:
            if what not in self._bars:
                self._bars[what] = self.add_task(what)
            self.update(self._bars[what], completed=done, total=max(done, total))
        elif (tenth := 10 * done // total) > self._tenths.get(what, -1):
            self._tenths[what] = tenth
            self.console.print(f"{what}: {done:,} of {max(done, total):,}")
