"""The steps of the demo, in order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from penstock import Store
from penstock.database import pool
from penstock.demo import stock, work
from penstock.demo.files import CUSTOMERS, PRODUCTS, Files, generate
from penstock.demo.findings import Findings, look
from penstock.demo.truth import Truth, compute
from penstock.errors import EmbeddedServerError

#: is called with a description, the amount done, and the total
Progress = Callable[[str, int, int], None]
POLL_SECONDS = 0.2

_PROGRESS = """
select
  (select coalesce(sum(published), 0) from penstock.deliveries)::bigint,
  coalesce((select messages_in from penstock.latest_processor_progress('shop', 'invoicing')), 0),
  coalesce((select messages_in from penstock.latest_processor_progress('shop', 'revenue')), 0)
"""


@dataclass
class Story:
    """The course of the demo."""

    files: Files
    killed_at: int = 0
    kill_second: float | None = None
    seconds: float = 0.0
    #: seconds, and orders processed by then
    timeline: list[tuple[float, int]] = field(default_factory=list)


def play(
    store: Store, folder: Path, orders: int, progress: Progress
) -> tuple[Story, Findings, Truth]:
    """Run the demo and return its course, its findings and the expected result."""
    started = time.monotonic()
    progress("writing the shop's files", 0, orders)
    story = Story(generate(folder / "files", orders))
    progress("writing the shop's files", orders, orders)
    work.start(store)
    with pool.connect(store.settings) as connection, stock.workers(store):
        with Helper(store, folder) as helper:
            _watch(helper, connection, story, orders, progress, started, until=2 * orders // 5)
            helper.kill()
            story.killed_at = story.timeline[-1][1]
            story.kill_second = time.monotonic() - started
            progress(f"killed it with -9 after {story.killed_at:,} orders; starting it again", 0, 0)
        with Helper(store, folder) as helper:
            _watch(helper, connection, story, orders, progress, started)
    story.seconds = time.monotonic() - started
    with pool.connect(store.settings) as connection:
        truth = compute(story.files)
        return story, look(connection, truth), truth


class Helper:
    """The process that runs the Spark jobs."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.log = folder / "work.log"
        address = store.settings.conninfo()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "penstock.demo.work", address, folder / "files"],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def is_running(self) -> bool:
        """Whether it is running; raises if it failed."""
        code = self._process.poll()
        if code:
            last_lines = "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
            raise EmbeddedServerError(f"the demo's Spark process failed:\n{last_lines}")
        return code is None

    def kill(self) -> None:
        """Kill it and its child processes with SIGKILL."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def __enter__(self) -> Helper:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def _watch(
    helper: Helper,
    connection: psycopg.Connection[Any],
    story: Story,
    orders: int,
    progress: Progress,
    started: float,
    until: int | None = None,
) -> None:
    """Report the progress until the work is done or `until` orders are processed."""
    while helper.is_running():
        extracted, invoiced, projected = connection.execute(_PROGRESS).fetchall()[0]
        story.timeline.append((time.monotonic() - started, invoiced))
        progress("extracting the files into the log", extracted, CUSTOMERS + PRODUCTS + orders)
        progress("creating invoices", invoiced, orders)
        progress("adding up revenue by day", projected, orders)
        if until is not None and invoiced >= until:
            return
        time.sleep(POLL_SECONDS)
    invoiced = connection.execute(_PROGRESS).fetchall()[0][1]
    story.timeline.append((time.monotonic() - started, invoiced))
    if until is None:
        progress("creating invoices", orders, orders)
        progress("adding up revenue by day", orders, orders)
