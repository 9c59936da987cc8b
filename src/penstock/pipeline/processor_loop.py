"""The thread of one processor: it runs one step after another until the run is over.

While the database cannot be reached, a step is tried again. If the function fails, `run` tries it
again after ever longer pauses, and ends with an error if it has failed for too long, so that a
supervisor notices. In `run_until_idle` and `run_once` such a processor stops, and the others go on.
Either way the error is logged at once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

import psycopg
from pyspark.sql import SparkSession

from penstock.database.operation import call
from penstock.database.waiters import written
from penstock.errors import (
    PenstockError,
    SparkStopped,
    StepFailed,
    StepSuperseded,
    UnavailableError,
    first_line,
)
from penstock.log.context import LogContext
from penstock.loops.outage import Outage
from penstock.pipeline.archiving import run_archive
from penstock.pipeline.attempt import StepContext
from penstock.pipeline.connection import ProcessorLocks, RunConnection
from penstock.pipeline.failures import is_passing
from penstock.pipeline.graph import Pipeline, Processor
from penstock.pipeline.hooks import ReadHooks
from penstock.pipeline.schedule import Schedule
from penstock.pipeline.snapshot import Remembered
from penstock.pipeline.step import StepReport, finish_rebuilding, run_step
from penstock.spark.connections import DatabaseRef
from penstock.spark.session import activate, has_stopped, separate_session
from penstock.store import Store

if TYPE_CHECKING:  # needs the extra `lake`
    from penstock.lake.store_catalog import StoreCatalog

log = logging.getLogger(__name__)


class Until(Enum):
    """When a run is over, unless it is stopped before."""

    ONE_STEP = "each processor has run at most one step"
    IDLE = "all that was in the log is processed"
    STOPPED = "it is stopped"


@dataclass(frozen=True)
class Timing:
    """How often a run polls and how long it retries, in seconds."""

    #: how often new messages are looked for, where wake-ups do not work
    poll_interval: float = 0.05
    #: how often the run's lock is checked while no messages are looked for
    lock_check_interval: float = 0.2
    #: the same in `run`, while nothing wakes it
    idle_lock_check_interval: float = 1.0
    #: how often a source is asked again in `run`: asking means calling its function
    source_poll_interval: float = 1.0
    #: how long a run waits for a database that cannot be reached
    outage_timeout: float = 120.0
    #: the pause after a failure, doubled with each failure of a function
    retry_delay: float = 1.0
    max_retry_delay: float = 60.0


@dataclass
class Progress:
    """What a processor has done in a run."""

    processor: str
    kind: str
    steps: int = 0
    messages_in: int = 0
    messages_out: int = 0
    failed: int = 0
    seconds: float = 0.0
    error: BaseException | None = None

    def add(self, report: StepReport) -> None:
        """Count one more step."""
        self.steps += not report.split
        self.messages_in += report.messages_in
        self.messages_out += report.messages_out
        self.failed += report.failed
        self.seconds += report.seconds


@dataclass
class Retries:
    """How soon a processor that failed is tried again, and for how long."""

    seconds: float
    timing: Timing = field(default_factory=Timing)
    clock: Callable[[], float] = time.monotonic
    _since: float | None = None
    _failures: int = 0

    def succeed(self) -> None:
        """Forget the failures."""
        self._since, self._failures = None, 0

    def pause_after(self, error: Exception) -> float:
        """Return how many seconds to wait, or raise the error if it has failed for too long."""
        if isinstance(error, StepSuperseded):
            return 0.0
        now, timing = self.clock(), self.timing
        self._since = now if self._since is None else self._since
        if is_passing(error):
            pause, longest = timing.retry_delay, max(timing.outage_timeout, self.seconds)
        else:
            pause = min(timing.retry_delay * 2**self._failures, timing.max_retry_delay)
            longest = self.seconds
            self._failures = min(self._failures + 1, 10)
        if now + pause - self._since >= longest:
            raise error
        return pause


@dataclass
class Run:
    """What the threads of one run share."""

    pipeline: Pipeline
    store: Store
    database: DatabaseRef
    spark: SparkSession
    schedule: Schedule
    locks: ProcessorLocks
    until: Until
    retry_for: float
    timing: Timing
    hooks: ReadHooks
    driver_rows: int
    on_step: Callable[[StepReport], None] | None
    log: LogContext
    #: of Iceberg tables, if the pipeline has some
    catalog: StoreCatalog | None = None
    #: whether it is over because the pipeline is to begin from scratch
    begins_again: bool = False
    #: an error of the run that is not a processor's
    failure: PenstockError | None = None

    def fail(self, error: PenstockError) -> None:
        """End the run with an error that is not a processor's."""
        log.error("%s", error)
        self.failure = error
        self.schedule.end()


class ProcessorLoop:
    """Runs the steps of one processor, in a thread of its own."""

    def __init__(
        self, run: Run, processor: Processor, progress: Progress, remembered: Remembered
    ) -> None:
        self.processor = processor
        self.progress = progress
        self.remembered = remembered
        self._run = run
        self._retries = Retries(run.retry_for, run.timing)
        self._outage = Outage(processor.name, log)

    def __call__(self) -> None:
        """Run steps until the run is over, or the processor has failed for too long."""
        schedule = self._run.schedule
        try:
            spark = separate_session(self._run.spark)
            activate(spark)
            while not schedule.is_over:
                try:
                    self._run_steps(spark)
                    return
                except Exception as error:
                    self._wait_after(error)
        except SparkStopped as error:
            self.progress.error = error
            self._run.fail(error)
        except BaseException as error:
            self.progress.error = error
            self._log(error)
            if self._run.until is Until.STOPPED:
                schedule.end()  # so that a supervisor notices
        finally:
            schedule.leave(self.processor.name)

    def _run_steps(self, spark: SparkSession) -> None:
        name, schedule = self.processor.name, self._run.schedule
        moves = self.processor.archives
        with self._run.locks.connection(name) as connection:
            if connection is None:  # the run is over
                return
            context = self._context(connection, spark)
            schedule.wait_to_begin(name)
            while (woken := schedule.wait_for_turn(name)) is not None:
                report = run_archive(context) if moves else run_step(context)
                self._succeeded(report)
                if self._run.until is Until.ONE_STEP:
                    return
                if report is None or moves:
                    schedule.be_idle(name, woken, self._longest_pause())
            if not moves:
                finish_rebuilding(context)  # those that feed it may have become idle after it

    def _longest_pause(self) -> float | None:
        """Return after how many seconds an idle processor runs again though it reads nothing."""
        if self._run.until is not Until.STOPPED:
            return None
        if self.processor.archives is not None:
            return self.processor.archives.every.total_seconds()
        is_source = self.processor.kind == "source"
        return self._run.timing.source_poll_interval if is_source else None

    def _context(self, connection: RunConnection, spark: SparkSession) -> StepContext:
        run, name = self._run, self.processor.name
        # pages come from the index, in its order
        off = "select set_config('enable_sort', 'off', false)"
        connection.run(call("disable_sort", off, (), lambda rows: None))
        return StepContext(
            run.pipeline, self.processor, run.database, connection, spark, run.hooks,
            self.remembered, lambda: run.schedule.is_fed(name), run.driver_rows, run.log,
            lambda: run.schedule.is_over, run.catalog,
        )  # fmt: skip

    def _succeeded(self, report: StepReport | None) -> None:
        """Forget earlier failures: a step was finished, or there was nothing to do."""
        self.progress.error = None
        self._retries.succeed()
        self._outage.is_over()
        self._run.schedule.recovered(self.processor.name)
        if report is not None:
            self.progress.add(report)
            self._run.schedule.finished_step(report.processor)
            if report.messages_out or report.failed:
                self._run.store.context.notify(written(self.processor.publishes, None))
            if self._run.on_step is not None:
                self._run.on_step(report)

    def _wait_after(self, error: Exception) -> None:
        """Wait until a processor that failed is tried again, or raise what it failed with."""
        run, name = self._run, self.processor.name
        if isinstance(error, SparkStopped):
            raise error
        if has_stopped(run.spark):
            raise SparkStopped(run.pipeline.name) from error
        pause = self._retries.pause_after(error)
        if isinstance(error, StepSuperseded):
            log.warning("%s", error)
        elif isinstance(error, UnavailableError):
            self._outage.goes_on(error)
        elif is_passing(error):
            log.warning("%s waits: %s", name, first_line(error))
        else:
            self.progress.error = error
            run.schedule.failed(name)
            self._log(error, f"; it is tried again in {pause:g} s")
        run.schedule.pause(pause)

    def _log(self, error: BaseException, then: str = "") -> None:
        """Log what stopped the processor, with the traceback of an error that needs it."""
        one, text = self.processor, str(error)
        if not isinstance(error, StepFailed):
            reason = text if isinstance(error, PenstockError) else repr(error)
            text = f"processor {one.name} ({one.location}) stopped: {reason}"
        is_expected = isinstance(error, PenstockError | psycopg.Error)
        log.error("%s%s", text, then, exc_info=None if is_expected else error)
