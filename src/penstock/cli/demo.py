"""`penstock demo`: an example shop that uses every part of Penstock, on an embedded server."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TimeElapsedColumn

import penstock
from penstock.cli.pipelines import need_spark
from penstock.cli.printing import TerminalProgress, console, note, print_table
from penstock.errors import SetupError
from penstock.store import Store

KEPT = Path("penstock-demo")


def demo(
    orders: Annotated[int, typer.Option(min=100, help="The number of orders.")] = 100_000,
    keep: Annotated[
        bool, typer.Option("--keep", help=f"Keep the database, files and report in {KEPT}/.")
    ] = False,
    console_stays: Annotated[
        bool, typer.Option("--console", help="Keep the console open at the end, until Ctrl-C.")
    ] = False,
) -> None:
    """Run an example shop on Spark, kill it, recover it, and check the result.

    Takes one to two minutes. Runs on this machine, with an embedded PostgreSQL. While it runs, the
    console shows it in a browser, if the extra `console` is installed.
    """
    need_spark()
    from penstock.demo.report import report
    from penstock.demo.shop import pipe
    from penstock.demo.story import play
    from penstock.pipeline.drawing import as_svg

    with (
        _folder(keep) as folder,
        penstock.connect(folder=folder / "database") as store,
        _console(store, needed=console_stays) as address,
    ):
        if address:
            note(f"watch it in a browser: {address}")
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
        if console_stays:
            note(f"the console stays open until Ctrl-C: {address}")
            with suppress(KeyboardInterrupt):
                threading.Event().wait()
    if keep:
        note(f"to explore it: penstock console --folder {folder / 'database'}")
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


@contextmanager
def _console(store: Store, *, needed: bool) -> Iterator[str | None]:
    """Serve the console, and yield its address; None if its extra is missing and not needed."""
    if not needed and not all(find_spec(name) for name in ("jinja2", "starlette", "uvicorn")):
        yield None
        return
    with subprocess.Popen(
        [sys.executable, "-m", "penstock", "console", "--port", "0"],
        env={**os.environ, "PENSTOCK_URL": store.settings.conninfo()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # Ctrl-C is for us
    ) as process:
        try:
            yield _address(process)
        finally:
            process.terminate()


def _address(process: subprocess.Popen[str]) -> str:
    """Return the address that the console prints when it listens."""
    output = process.stdout
    assert output is not None
    lines = []
    for line in output:
        lines.append(line)
        if found := re.search(r"http://\S+", line):
            threading.Thread(
                target=output.read, daemon=True
            ).start()  # or it would block in the end
            return found[0]
    raise SetupError(f"the console did not start: {''.join(lines).strip()}")


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
