"""The crash matrix: every pipeline, in both shapes of a step, killed at each of its points.

One driver runs many pipelines side by side. Each comes to its point and stands there, since its
wire has stopped. When all have arrived, the driver is killed with all its processes. Then a fresh
run of each pipeline goes on, and its result is compared with that of an undisturbed run.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from psycopg.conninfo import conninfo_to_dict
from pyspark.sql import SparkSession

import penstock
from penstock.errors import PenstockError
from penstock.pipeline import Runner
from penstock.pipeline.frames import DRIVER_ROWS
from tests.conftest import Server
from tests.forked_python import ROOT, ForkedProcess, spark_server
from tests.pipeline.steps.counted_wire import CountedWire, Point
from tests.pipeline.steps.doomed_driver import Job
from tests.pipeline.steps.running import Harness
from tests.pipeline.steps.shapes import SHAPES, connect, fill, pipeline, result

DRIVER = "tests.pipeline.steps.doomed_driver"
PATIENCE = 600  # seconds, until all have come to their points
AT_ONCE = 64  # pipelines that one driver runs
SIDE_BY_SIDE = 4  # of them, before they have come to their points

#: who reads and stages in a step, and up to how many rows the driver does it alone
STEPS = {"driver": DRIVER_ROWS, "executors": 0}

#: what is done at a point, by words of the statement
KINDS = {
    "the processor is registered": ("penstock.open_processor", "penstock.place_tailers"),
    "the catalog of Iceberg tables is created": ("create iceberg",),
    "an Iceberg table is created": (": insert iceberg",),
    "the Snapshot is written": ("message_store.write_message",),
    "rows are being staged": (": insert penstock.stagings", ": copy penstock.staged"),
    "rows are staged": ("commit of insert penstock.stagings",),
    "errors are staged": ("penstock.stage_errors", "penstock.drop_repeated_errors"),
    "the files of an Iceberg table are written, and it is locked": (": lock iceberg_tables",),
    "in the transaction: an Iceberg table gets a snapshot": (": update iceberg_tables",),
    "in the transaction: messages are published": (": penstock.commit_step", "publish_staged"),
    "in the transaction: rows of an upsert": ("totals", "penstock_upsert"),
    "in the transaction: rows of a projection": ("states",),
    "in the transaction: all is written": ("update penstock.processor_progress",),
    "committed, and the driver does not know": (
        *("commit of penstock.commit_step", "commit of lock iceberg_tables"),
    ),
    "the staging is cleaned up": ("penstock.unstage",),
}


class Case(NamedTuple):
    """A pipeline, and who reads and stages in its steps."""

    step: str
    pipeline: str


class Kill(NamedTuple):
    """A pipeline, and the point at which it is killed."""

    case: Case
    point: Point

    @property
    def kind(self) -> str:
        """What was done last."""
        return kind_of(self.point.name)

    def __str__(self) -> str:
        return f"{self.case.pipeline}, staged by the {self.case.step}, killed at {self.point}"


CASES = [Case(step, pipeline) for step in STEPS for pipeline in SHAPES]


@dataclass
class Matrix:
    """Runs pipelines: undisturbed, to know their points and results, and killed."""

    server: Server
    spark: SparkSession
    folder: Path
    points: dict[Case, list[Point]] = field(default_factory=dict)
    results: dict[Case, dict[str, Any]] = field(default_factory=dict)

    def all_kills(self, cases: Iterable[Case]) -> list[Kill]:
        """Return a kill for each point of these pipelines."""
        return [Kill(case, point) for case in cases for point in self._undisturbed(case)]

    def killed(self, kills: Sequence[Kill]) -> list[str]:
        """Kill a driver in which each of these has come to its point. Return what went wrong."""
        places = Counter[str]()
        numbers = []  # pipelines of one name need databases of their own
        for case, _ in kills:
            # so do those that create the catalog of Iceberg tables
            name = "table" if case.pipeline.startswith("table_") else case.pipeline
            numbers.append(places[name])
            places[name] += 1
        with self._databases(max(numbers) + 1) as urls:
            mine = [urls[number] for number in numbers]
            self._kill(kills, mine)
            with ThreadPoolExecutor(SIDE_BY_SIDE) as threads:
                found = list(threads.map(self._went_on, kills, mine))
        return [wrong for wrong in found if wrong]

    def _undisturbed(self, case: Case) -> list[Point]:
        if case not in self.points:
            with self._databases(1) as (url,), CountedWire(url) as wire:
                wire.driver = os.getpid()
                self.results[case] = self._run(case, wire.url, url)
                self.points[case] = wire.points
        return self.points[case]

    def _kill(self, kills: Sequence[Kill], urls: Sequence[str]) -> None:
        """Kill a driver, with all that belongs to it, once each pipeline stands at its point."""
        with ExitStack() as open_wires:
            wires = [
                open_wires.enter_context(CountedWire(url, kill.point))
                for url, kill in zip(urls, kills, strict=True)
            ]
            jobs = [
                self._job(kill.case, wire.url, url)
                for wire, kill, url in zip(wires, kills, urls, strict=True)
            ]
            with _driver() as process:
                for number, wire in enumerate(wires):
                    wire.driver = process.pid
                    _order(process, jobs[number])
                    _wait_until_stopped(process, wires[: number + 1], SIDE_BY_SIDE - 1)
                _wait_until_stopped(process, wires)
            assert process.returncode == -signal.SIGKILL

    def _went_on(self, kill: Kill, url: str) -> str | None:
        """Let a fresh run go on. Return what is wrong with its result."""
        try:
            found = self._run(kill.case, url, url)
        except PenstockError as error:
            return f"{kill}: {error}"
        expected = self.results[kill.case]
        return None if found == expected else f"{kill}: {found} instead of {expected}"

    def _run(self, case: Case, url: str, database: str) -> dict[str, Any]:
        job = self._job(case, url, database)
        pipe = pipeline(job["pipeline"], job["folder"])
        with connect(url, job["folder"]) as store:
            Runner(pipe, store, self.spark, driver_rows=job["driver_rows"]).run_until_idle(
                wait=True
            )
        with connect(database, job["folder"]) as store:
            return result(Harness(store, self.spark), case.pipeline, job["folder"])

    def _job(self, case: Case, url: str, database: str) -> Job:
        folder = self.folder / str(conninfo_to_dict(database)["dbname"])
        return {
            "url": url,
            "pipeline": case.pipeline,
            "folder": str(folder),
            "driver_rows": STEPS[case.step],
        }

    @cached_property
    def _filled(self) -> str:
        """The name of a database with messages for all pipelines, to copy others from."""
        name = self.server.create_database(self.server.template("penstock"))
        with penstock.connect(self.server.url(name)) as store:
            fill(store)
        return name

    @contextmanager
    def _databases(self, count: int) -> Iterator[list[str]]:
        """Lend databases with messages for all pipelines."""
        names = [self.server.create_database(self._filled) for _ in range(count)]
        try:
            yield [self.server.url(name) for name in names]
        finally:
            for name in names:
                self.server.drop_database(name)


def kind_of(name: str) -> str:
    """Return what is done at a point of this name."""
    return next(kind for kind, words in KINDS.items() if any(word in name for word in words))


def in_rounds(matrix: Matrix, varied: Sequence[str], seed: int) -> Iterator[list[Kill]]:
    """Yield all kills, as many at a time as one driver takes; first, one of each kind.

    The first are of these pipelines, so that the others need not be run for them. Which ones they
    are, and the order of the others, depends on the seed.
    """
    chosen = random.Random(seed)
    few = matrix.all_kills(Case(step, name) for step in STEPS for name in varied)
    first = {(kill.case.step, kill.kind): kill for kill in chosen.sample(few, len(few))}
    yield list(first.values())
    others = sorted(set(matrix.all_kills(CASES)) - set(first.values()))
    order = chosen.sample(others, len(others))
    for start in range(0, len(order), AT_ONCE):
        yield order[start : start + AT_ONCE]


@contextmanager
def _driver() -> Iterator[ForkedProcess]:
    """Lend a driver, and kill it with all that belongs to it."""
    with spark_server().start(
        *("-m", DRIVER),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                others = psutil.Process(process.pid).children(recursive=True)
                process.kill()
                for one in others:
                    with suppress(psutil.NoSuchProcess):
                        one.kill()
                psutil.wait_procs(others, timeout=60)


def _order(process: ForkedProcess, job: Job) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(job) + "\n")
    process.stdin.flush()


def _wait_until_stopped(process: ForkedProcess, wires: Sequence[CountedWire], but: int = 0) -> None:
    """Wait until all pipelines stand at their points, but so many."""
    deadline = time.monotonic() + PATIENCE
    while len(walking := [wire for wire in wires if not wire.stopped.is_set()]) > but:
        ended = process.poll() is not None
        said = process.stdout.read() if ended and process.stdout else ""
        assert not ended, f"the driver ended before it was killed: {said}"
        assert time.monotonic() < deadline, f"{walking[0].stop_at} not in {walking[0].points}"
        walking[0].stopped.wait(0.05)
