"""The steps of the demo, in order."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from penstock import Store
from penstock.database import pool
from penstock.demo import stock, work
from penstock.demo.files import CUSTOMERS, PRODUCTS, generate
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

    orders: int
    progress: Progress
    started: float = field(default_factory=time.monotonic)
    killed_at: int = 0
    kill_second: float = 0.0
    seconds: float = 0.0
    #: seconds, and orders processed by then
    timeline: list[tuple[float, int]] = field(default_factory=list)

    def elapsed(self) -> float:
        """Return the seconds since the demo started."""
        return time.monotonic() - self.started

    def watch(
        self,
        is_running: Callable[[], bool],
        connection: psycopg.Connection[Any],
        until: float = math.inf,
    ) -> None:
        """Report the progress until the work is done or `until` orders are processed."""
        running, invoiced = True, 0
        while running and invoiced < until:
            time.sleep(POLL_SECONDS)
            running = is_running()
            extracted, invoiced, projected = connection.execute(_PROGRESS).fetchall()[0]
            self.timeline.append((self.elapsed(), invoiced))
            files = CUSTOMERS + PRODUCTS + self.orders
            self.progress("extracting the files into the log", extracted, files)
            self.progress("creating invoices", invoiced, self.orders)
            self.progress("adding up revenue by day", projected, self.orders)


def play(
    store: Store, folder: Path, orders: int, progress: Progress
) -> tuple[Story, Findings, Truth]:
    """Run the demo and return its course, its findings and the expected result."""
    story = Story(orders, progress)
    progress("writing the shop's files", 0, orders)
    generate(folder / "files", orders)
    progress("writing the shop's files", orders, orders)
    work.start(store)
    with pool.connect(store.settings) as connection, stock.workers(store):
        with _spark_jobs(store, folder) as is_running:
            story.watch(is_running, connection, until=2 * orders // 5)
        story.killed_at, story.kill_second = story.timeline[-1][1], story.elapsed()
        progress(f"killed it with -9 after {story.killed_at:,} orders; starting it again", 0, 0)
        with _spark_jobs(store, folder) as is_running:
            story.watch(is_running, connection)
        progress("creating invoices", orders, orders)
        progress("adding up revenue by day", orders, orders)
    story.seconds = story.elapsed()
    with pool.connect(store.settings) as connection:
        truth = compute(folder / "files")
        return story, look(connection, truth), truth


@contextmanager
def _spark_jobs(store: Store, folder: Path) -> Iterator[Callable[[], bool]]:
    """Run the Spark jobs in a process until the end of the block, which kills it with SIGKILL.

    Yields whether it is running; raises if it failed.
    """
    log = folder / "work.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "penstock.demo.work",
                store.settings.conninfo(),
                folder / "files",
            ],
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def is_running() -> bool:
        if process.poll():
            last_lines = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            raise EmbeddedServerError(f"the demo's Spark process failed:\n{last_lines}")
        return process.returncode is None

    try:
        yield is_running
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # its child processes as well
        process.wait()
