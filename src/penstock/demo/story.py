"""What happens in the demo, in its order, in front of the user."""

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

#: is told what is going on: a heading, how much of it is done, and how much there is
Tell = Callable[[str, int, int], None]
LOOK_AGAIN = 0.2  # seconds

_PROGRESS = """
select
  (select coalesce(sum(published), 0) from penstock.deliveries)::bigint,
  coalesce((select messages_in from penstock.latest_processor_progress('shop', 'invoicing')), 0),
  coalesce((select messages_in from penstock.latest_processor_progress('shop', 'revenue')), 0)
"""


@dataclass
class Story:
    """How it went."""

    files: Files
    killed_at: int = 0
    kill_second: float | None = None
    seconds: float = 0.0
    #: seconds, and orders processed by then
    timeline: list[tuple[float, int]] = field(default_factory=list)


def play(store: Store, folder: Path, orders: int, tell: Tell) -> tuple[Story, Findings, Truth]:
    """Play the demo and return how it went and what came out."""
    started = time.monotonic()
    tell("writing the shop's files", 0, orders)
    story = Story(generate(folder / "files", orders))
    tell("writing the shop's files", orders, orders)
    work.start(store)
    with pool.connect(store.settings) as connection, stock.workers(store):
        with Helper(store, folder) as helper:
            _watch(helper, connection, story, orders, tell, started, until=2 * orders // 5)
            helper.kill()
            story.killed_at = story.timeline[-1][1]
            story.kill_second = time.monotonic() - started
            tell(f"killed it with -9 after {story.killed_at:,} orders; starting it again", 0, 0)
        with Helper(store, folder) as helper:
            _watch(helper, connection, story, orders, tell, started)
    story.seconds = time.monotonic() - started
    with pool.connect(store.settings) as connection:
        truth = compute(story.files)
        return story, look(connection, truth), truth


class Helper:
    """The process that does the Spark work."""

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
        """Whether it still works; raise if it failed."""
        code = self._process.poll()
        if code:
            words = "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
            raise EmbeddedServerError(f"the demo's Spark process failed:\n{words}")
        return code is None

    def kill(self) -> None:
        """Kill it and all that it started, without a warning."""
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
    tell: Tell,
    started: float,
    until: int | None = None,
) -> None:
    """Tell how far it is, until the work is done or so many orders are processed."""
    while helper.is_running():
        extracted, invoiced, projected = connection.execute(_PROGRESS).fetchall()[0]
        story.timeline.append((time.monotonic() - started, invoiced))
        tell("extracting the files into the log", extracted, CUSTOMERS + PRODUCTS + orders)
        tell("making invoices", invoiced, orders)
        tell("keeping revenue by day", projected, orders)
        if until is not None and invoiced >= until:
            return
        time.sleep(LOOK_AGAIN)
    invoiced = connection.execute(_PROGRESS).fetchall()[0][1]
    story.timeline.append((time.monotonic() - started, invoiced))
    if until is None:
        tell("making invoices", orders, orders)
        tell("keeping revenue by day", orders, orders)
