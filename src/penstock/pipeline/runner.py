"""Running a pipeline: its processors side by side, each one step at a time.

A processor with nothing to do rests until another one has finished a step. A run of `once` is over
when all of them rest and none has anything new; a run of `follow` looks again, several times a
second, until it is stopped. To stop is to finish the steps in hand. While the database is away,
steps are tried again; a processor whose function fails stops, and the others go on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import psycopg
from pyspark import InheritableThread
from pyspark.sql import SparkSession

from penstock.database.execute import typed_errors
from penstock.errors import (
    PenstockError,
    StepSuperseded,
    UnavailableError,
    ValidationError,
    first_line,
)
from penstock.outage import Outage
from penstock.pipeline import planning
from penstock.pipeline.catching_up import CatchingUp
from penstock.pipeline.checks import check, check_schemas
from penstock.pipeline.choosing import Memory
from penstock.pipeline.connections import Place, connect
from penstock.pipeline.failures import is_passing
from penstock.pipeline.frames import queue_target
from penstock.pipeline.graph import Pipeline, Processor
from penstock.pipeline.restart import restart
from penstock.pipeline.run_lock import RunLock, lock_run, show_running
from penstock.pipeline.session import session
from penstock.pipeline.step import Bench, StepReport, finish_rebuilding, run_step
from penstock.pipeline.threads import activate
from penstock.store import Store

log = logging.getLogger(__name__)
LOOK_AGAIN = 0.05  # seconds, for new messages
SOURCE_LOOKS_AGAIN = 1.0  # seconds, since to look is to run its function
PATIENCE = 120.0  # seconds, for a database that is away
TRY_AGAIN = 1.0  # seconds


@dataclass
class Progress:
    """What a processor has done in this run."""

    processor: str
    kind: str
    steps: int = 0
    messages_in: int = 0
    messages_out: int = 0
    failed: int = 0
    seconds: float = 0.0
    error: BaseException | None = None


@dataclass
class Summary:
    """What a run has done, by processor."""

    pipeline: str
    progress: dict[str, Progress] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def succeeded(self) -> bool:
        """Whether no processor had to stop."""
        return all(one.error is None for one in self.progress.values())


class Patience:
    """How long a processor tries again what fails for no fault of its own."""

    def __init__(self, processor: str) -> None:
        self._processor = processor
        self._outage = Outage(processor, log)
        self._since: float | None = None
        self._steps = 0

    def is_over(self) -> None:
        """Note that nothing failed this time."""
        self._outage.is_over()

    def wait_after(self, error: PenstockError, steps: int) -> None:
        """Wait a little, or raise: if it will fail again, or has failed for too long."""
        if isinstance(error, StepSuperseded):
            log.warning("%s", error)
            return
        if self._since is None or steps > self._steps:
            self._since, self._steps = time.monotonic(), steps
        if not is_passing(error) or time.monotonic() - self._since > PATIENCE:
            raise error
        if isinstance(error, UnavailableError):
            self._outage.goes_on(error)
        else:
            log.warning("%s waits: %s", self._processor, first_line(error))
        time.sleep(TRY_AGAIN)


class Runner:
    """Runs a pipeline on a store, with Spark."""

    def __init__(
        self,
        pipeline: Pipeline,
        store: Store,
        spark: SparkSession | None = None,
        *,
        on_step: Callable[[StepReport], None] | None = None,
    ) -> None:
        if not isinstance(pipeline, Pipeline):
            raise ValidationError("pipeline", pipeline, "a Pipeline")
        check(pipeline)
        self.pipeline = pipeline
        self.place = Place(store.settings)
        self.spark = spark or session(f"penstock {pipeline.name}")
        check_schemas(pipeline)
        self._on_step = on_step
        self._changed = threading.Condition()
        self._finished_steps = 0
        self._resting: set[str] = set()
        self._working: set[str] = set()
        self._catching_up = CatchingUp(pipeline)
        self._is_over = False
        self._follows = False

    def once(self, *, wait: bool = False) -> Summary:
        """Process all that is in the log by now, and what comes of it."""
        return self._run(follow=False, wait=wait)

    def follow(self, *, wait: bool = False) -> Summary:
        """Process what there is and what comes, until `stop`."""
        return self._run(follow=True, wait=wait)

    def stop(self) -> None:
        """Finish the steps in hand and come to an end. May be called from a signal handler."""
        self._is_over = True

    def from_scratch(self, *, wait: bool = False) -> None:
        """Make every processor but the sources begin again, at the next run.

        Tables of projections are rebuilt beside the live ones; streams publish anew.
        """
        self._is_over = False
        lock = self._lock(wait=wait)
        try:
            with connect(self.place) as connection, typed_errors(self.place.where):
                restart(connection, self.pipeline)
        finally:
            lock.release()

    def _run(self, *, follow: bool, wait: bool) -> Summary:
        started = time.monotonic()
        processors = list(self.pipeline.processors.values())
        summary = Summary(
            self.pipeline.name, {one.name: Progress(one.name, one.kind) for one in processors}
        )
        self._follows, self._is_over = follow, False
        lock = self._lock(wait=wait)
        try:
            self._working, self._resting = {one.name for one in processors}, set()
            self._catching_up = CatchingUp(self.pipeline)
            ends = {} if follow else self._ends()
            threads = [
                InheritableThread(
                    target=self._work, args=(one, ends, summary.progress[one.name]), daemon=True
                )
                for one in processors
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.1)  # so that a signal is seen
        finally:
            lock.release()
        summary.seconds = time.monotonic() - started
        return summary

    def _lock(self, *, wait: bool) -> RunLock:
        return lock_run(self.place, self.pipeline.name, wait=wait, stopped=lambda: self._is_over)

    def _ends(self) -> dict[str, int]:
        """Return where the queues that come from outside end now: `once` reads no further."""
        made = {queue for one in self.pipeline.processors.values() for queue in one.publishes}
        outside = {queue for one in self.pipeline.processors.values() for queue in one.reads} - made
        with connect(self.place) as connection, typed_errors(self.place.where):
            return {queue: planning.head(connection, queue_target(queue)) for queue in outside}

    def _work(self, one: Processor, ends: dict[str, int], progress: Progress) -> None:
        """Run a processor's steps until the run is over, or its function fails."""
        activate(self.spark)
        memory, patience = Memory(ends=ends), Patience(one.name)
        try:
            while not self._is_over:
                try:
                    self._steps(one, memory, progress, patience)
                    return
                except PenstockError as error:
                    self._wake()  # who knows what was committed
                    patience.wait_after(error, progress.steps)
        except BaseException as error:
            progress.error = error
            if not isinstance(error, PenstockError | psycopg.Error):
                log.exception("%s stopped", one.name)
        finally:
            self._leave(one.name)

    def _steps(
        self, one: Processor, memory: Memory, progress: Progress, patience: Patience
    ) -> None:
        with connect(self.place) as connection, typed_errors(self.place.where):
            connection.execute("set enable_sort = off")  # pages come from the index in its order
            show_running(connection, self.pipeline.name, one.name)
            bench = Bench(
                self.pipeline, one, self.place, connection, self.spark, memory,
                lambda: self._has_all(one.name),
            )  # fmt: skip
            self._wait_for_tables(one.name)
            while not self._is_over:
                seen = self._finished_steps
                report = run_step(bench)
                patience.is_over()
                if report is not None:
                    self._finished(report, progress)
                elif not self._rest(one, seen):
                    finish_rebuilding(bench)  # those that feed it may have rested after it
                    return

    def _finished(self, report: StepReport, progress: Progress) -> None:
        progress.steps += not report.split
        progress.messages_in += report.messages_in
        progress.messages_out += report.messages_out
        progress.failed += report.failed
        progress.seconds += report.seconds
        self._wake()
        if self._on_step is not None:
            self._on_step(report)

    def _wake(self) -> None:
        """Let everybody look whether there is something to do."""
        with self._changed:
            self._finished_steps += 1
            self._resting.clear()
            self._changed.notify_all()

    def _wait_for_tables(self, name: str) -> None:
        with self._changed:
            while not self._is_over and not self._catching_up.may_begin(name):
                self._changed.wait(0.5)

    def _has_all(self, name: str) -> bool:
        with self._changed:
            return self._catching_up.has_all(name)

    def _rest(self, one: Processor, seen: int) -> bool:
        """Wait until there may be more to do. Return whether the run goes on."""
        pause = SOURCE_LOOKS_AGAIN if one.kind == "source" else LOOK_AGAIN
        with self._changed:
            if self._finished_steps != seen:
                return True
            self._resting.add(one.name)
            if self._catching_up.rest(self._resting):
                self._changed.notify_all()
            self._end_if_all_rest()
            while not self._is_over and self._finished_steps == seen:
                self._changed.wait(pause if self._follows else 0.5)
                if self._follows:
                    break
            self._resting.discard(one.name)
            return not self._is_over

    def _leave(self, name: str) -> None:
        with self._changed:
            self._working.discard(name)
            self._catching_up.leave(name)
            self._catching_up.rest(self._resting)
            self._end_if_all_rest()

    def _end_if_all_rest(self) -> None:
        if not self._follows and self._working <= self._resting:
            self._is_over = True
        self._changed.notify_all()
