"""Running a pipeline: its processors side by side, each one step at a time.

A processor with nothing to read rests until it is woken; see `scheduling`. A run of `once` is over
when all of them rest and no message waits for any of them; a run of `follow` goes on until it is
stopped. To stop is to finish the steps in hand.

The calling thread watches: it asks the database, for all who rest at once, whether there is
something to read, on the connection that holds the run's lock, so it notices if that is lost.

While the database is away, steps are tried again. In a run of `once` a processor whose function
fails stops, and the others go on. In one of `follow` it is tried again, ever more seldom; if it has
failed for too long the run ends with an error, so that a supervisor notices.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import psycopg
from pyspark import InheritableThread
from pyspark.sql import SparkSession

from penstock.database.server_errors import typed_errors
from penstock.errors import (
    PenstockError,
    PipelineRunning,
    RunFailed,
    RunLockLost,
    SparkStopped,
    StepFailed,
    StepSuperseded,
    UnavailableError,
    ValidationError,
    first_line,
)
from penstock.loops.outage import Outage
from penstock.pipeline import state
from penstock.pipeline.checks import check as check_graph
from penstock.pipeline.checks import check_schemas
from penstock.pipeline.failures import is_passing
from penstock.pipeline.frames import DRIVER_ROWS, queue_target
from penstock.pipeline.graph import Pipeline, Processor
from penstock.pipeline.next_snapshot import Memory
from penstock.pipeline.restart import restart
from penstock.pipeline.run_lock import ProcessorLocks, RunLock, lock_run
from penstock.pipeline.schedule import Schedule
from penstock.pipeline.step import Bench, StepReport, finish_rebuilding, run_step
from penstock.spark.connections import DatabaseRef, connect, run
from penstock.spark.read import planning
from penstock.spark.session import activate, has_stopped, separate_session, session
from penstock.store import Store

log = logging.getLogger(__name__)
LOOK_AGAIN = 0.05  # seconds, for new messages
LOOK_AT_LOCK = 0.2  # seconds, of a run that looks for no messages
SOURCE_LOOKS_AGAIN = 1.0  # seconds, since to look is to run its function
PATIENCE = 120.0  # seconds, for a database that is away
TRY_AGAIN = 1.0  # seconds, and twice as long after each failure of a function
LONGEST_PAUSE = 60.0  # seconds
RETRY_FOR = 300.0  # seconds, for a function that fails in `follow`


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
        return not self.errors

    @property
    def errors(self) -> dict[str, BaseException]:
        """What stopped processors, by their names."""
        return {name: one.error for name, one in self.progress.items() if one.error is not None}


class Retries:
    """How soon a processor that failed is tried again, and for how long."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: float | None = None
        self._failures = 0

    def succeed(self) -> None:
        """Forget the failures: what was tried again did not fail."""
        self._since, self._failures = None, 0

    def pause_after(self, error: Exception) -> float:
        """Return how many seconds to wait, or raise the error if it has failed for too long."""
        if isinstance(error, StepSuperseded):
            return 0.0
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if is_passing(error):
            pause, patience = TRY_AGAIN, max(PATIENCE, self._seconds)
        else:
            pause = min(TRY_AGAIN * 2**self._failures, LONGEST_PAUSE)
            patience = self._seconds
            self._failures = min(self._failures + 1, 10)
        if now + pause - self._since >= patience:
            raise error
        return pause


class Runner:
    """Runs a pipeline on a store, with Spark."""

    def __init__(
        self,
        pipeline: Pipeline,
        store: Store,
        spark: SparkSession | None = None,
        *,
        on_step: Callable[[StepReport], None] | None = None,
        driver_rows: int = DRIVER_ROWS,
    ) -> None:
        """Prepare to run it.

        Args:
            pipeline: what to run.
            store: the database that it reads and writes.
            spark: the session to use; without it, one is made.
            on_step: called after each step.
            driver_rows: up to so many messages a step is read and staged by the driver alone,
                beyond it by the executors.
        """
        if not isinstance(pipeline, Pipeline):
            raise ValidationError("pipeline", pipeline, "a Pipeline")
        if not isinstance(driver_rows, int) or driver_rows < 0:
            raise ValidationError("driver_rows", driver_rows, "a whole number, 0 or more")
        check_graph(pipeline)
        self.pipeline = pipeline
        self.place = DatabaseRef(store.settings)
        self.spark = spark or session(f"penstock {pipeline.name}")
        if getattr(self.spark, "_jsparkSession", None) is None:
            expected = (
                "a SparkSession whose driver is this process: the steps of a pipeline do not run "
                "through Spark Connect, where only the format penstock works"
            )
            raise ValidationError("spark", self.spark, expected)
        check_schemas(pipeline)
        self._on_step = on_step
        self._driver_rows = driver_rows
        self._schedule = Schedule(pipeline)
        self._failure: PenstockError | None = None

    def once(self, *, wait: bool = False, check: bool = True) -> Summary:
        """Process all that is in the log by now, and what comes of it.

        Args:
            wait: wait for another run of this pipeline to end, instead of being refused.
            check: raise `RunFailed` if a processor had to stop; else the summary says so.
        """
        return self._run(follow=False, wait=wait, check=check, retry_for=0.0)

    def follow(
        self, *, wait: bool = False, check: bool = True, retry_for: float = RETRY_FOR
    ) -> Summary:
        """Process what there is and what comes, until `stop`.

        Args:
            wait: wait for another run of this pipeline to end, instead of being refused.
            check: raise `RunFailed` if a processor had to stop; else the summary says so.
            retry_for: how many seconds a processor that fails is tried again before the run ends.
        """
        if not isinstance(retry_for, int | float) or not 0 <= retry_for <= math.inf:
            raise ValidationError("retry_for", retry_for, "a number of seconds, 0 or more")
        return self._run(follow=True, wait=wait, check=check, retry_for=retry_for)

    def stop(self) -> None:
        """Finish the steps in hand and come to an end. May be called from a signal handler."""
        self._schedule.is_over = True

    def from_scratch(self, *, wait: bool = False) -> None:
        """Make every processor but the sources begin again, at the next run.

        Tables of projections are rebuilt beside the live ones; streams publish anew.
        """
        self._schedule = Schedule(self.pipeline)
        lock = self._lock(wait=wait)
        try:
            with self._locks().connection(*self.pipeline.processors) as connection:
                if connection is None:  # it was stopped
                    raise PipelineRunning(self.pipeline.name, "its steps are not finished yet")
                restart(connection, self.pipeline)
        finally:
            lock.release()

    def _run(self, *, follow: bool, wait: bool, check: bool, retry_for: float) -> Summary:
        started = time.monotonic()
        processors = list(self.pipeline.processors.values())
        summary = Summary(
            self.pipeline.name, {one.name: Progress(one.name, one.kind) for one in processors}
        )
        self._schedule, self._failure = Schedule(self.pipeline), None
        lock = self._lock(wait=wait)
        try:
            ends = {} if follow else self._ends()
            locks = self._locks()
            works = {
                one.name: _Work(
                    one, summary.progress[one.name], Memory(ends=ends), locks, Retries(retry_for),
                    Outage(one.name, log), follow,
                )
                for one in processors
            }  # fmt: skip
            for work in works.values():
                InheritableThread(target=self._work, args=(work,), daemon=True).start()
            self._watch(lock, works, follow=follow, retry_for=retry_for)
            self._schedule.end()
            while self._schedule.wait(0.1, until_all_rest=False):
                pass  # they finish the steps in hand
        finally:
            self._schedule.end()
            lock.release()
        summary.seconds = time.monotonic() - started
        if self._failure is not None:
            raise self._failure
        if check and (errors := summary.errors):
            told = {name: str(error) or repr(error) for name, error in errors.items()}
            raise RunFailed(self.pipeline.name, told) from next(iter(errors.values()))
        return summary

    def _lock(self, *, wait: bool) -> RunLock:
        schedule = self._schedule
        return lock_run(self.place, self.pipeline.name, wait=wait, stopped=lambda: schedule.is_over)

    def _locks(self) -> ProcessorLocks:
        schedule = self._schedule
        return ProcessorLocks(self.place, self.pipeline.name, lambda: schedule.is_over)

    def _ends(self) -> dict[str, int]:
        """Return where the queues that come from outside end now: `once` reads no further."""
        made = {queue for one in self.pipeline.processors.values() for queue in one.publishes}
        outside = {queue for one in self.pipeline.processors.values() for queue in one.reads} - made
        with connect(self.place) as connection, typed_errors(self.place.where):
            return {queue: run(connection, planning.head(queue_target(queue))) for queue in outside}

    # In the calling thread

    def _watch(
        self, lock: RunLock, works: Mapping[str, _Work], *, follow: bool, retry_for: float
    ) -> None:
        """Wake who has something to read, until the run is over; see that it has lock and Spark."""
        schedule, lost, looked_at = self._schedule, Retries(retry_for), -1
        outage = Outage(f"pipeline {self.pipeline.name}", log)
        pause = LOOK_AGAIN if follow else LOOK_AT_LOCK
        while schedule.wait(pause, until_all_rest=not follow) and not schedule.is_over:
            if has_stopped(self.spark):
                self._failure = SparkStopped(self.pipeline.name)
                return
            try:
                all_rest = schedule.all_rest()
                if all_rest and not follow and schedule.steps == looked_at:
                    return  # they were woken, and found nothing
                looks = follow or all_rest  # else only to see that the lock is held
                looked_at = schedule.steps if looks else looked_at
                names = schedule.resting() if looks else []
                found = self._with_messages(lock, [works[name] for name in names])
                if all_rest and not follow and not found:
                    return
                schedule.wake(found)
                lost.succeed()
                outage.is_over()
            except PenstockError as error:
                self._regain(lock, lost, outage, error)

    def _with_messages(self, lock: RunLock, resting: Sequence[_Work]) -> list[str]:
        """Return which of these processors have something to read."""
        readers = {work.processor.name: work.memory.tailers for work in resting}
        ends = resting[0].memory.ends if resting else {}
        with typed_errors(self.place.where):
            found = state.messages_to_read(lock.connection, readers, ends)
        return [name for name in readers if self.pipeline.processors[name].can_read(found[name])]

    def _regain(self, lock: RunLock, lost: Retries, outage: Outage, error: PenstockError) -> None:
        """Take the run's lock again, and let no step begin before."""
        schedule = self._schedule
        schedule.hold(True)
        try:
            pause = lost.pause_after(error)
        except PenstockError:
            self._fail(error)
            return
        outage.goes_on(error)
        try:
            lock.regain()
            schedule.hold(False)
        except RunLockLost as lost_for_good:
            self._fail(lost_for_good)
        except PenstockError:
            schedule.wait(pause, until_all_rest=False)

    def _fail(self, error: PenstockError) -> None:
        """End the run with an error that is none of a processor's."""
        log.error("%s", error)
        self._failure = error
        self._schedule.end()

    # In the thread of a processor

    def _work(self, work: _Work) -> None:
        """Run a processor's steps until the run is over, or it has failed for too long."""
        try:
            spark = separate_session(self.spark)
            activate(spark)
            while not self._schedule.is_over:
                try:
                    self._steps(work, spark)
                    return
                except Exception as error:
                    self._wait_after(work, error)
        except SparkStopped as error:
            work.progress.error = error
            self._fail(error)
        except BaseException as error:
            work.progress.error = error
            log.error("%s", work.told(error), exc_info=_unexpected(error))
            if work.follows:
                self._schedule.end()  # so that a supervisor notices
        finally:
            self._schedule.leave(work.processor.name)

    def _steps(self, work: _Work, spark: SparkSession) -> None:
        one, schedule = work.processor, self._schedule
        pause = SOURCE_LOOKS_AGAIN if one.kind == "source" and work.follows else None
        with work.locks.connection(one.name) as connection:
            if connection is None:  # the run is over
                return
            connection.execute("set enable_sort = off")  # pages come from the index in its order
            bench = Bench(
                self.pipeline, one, self.place, connection, spark, work.memory,
                lambda: schedule.has_all(one.name), self._driver_rows,
            )  # fmt: skip
            schedule.wait_to_begin(one.name)
            while (woken := schedule.wait_for_turn(one.name)) is not None:
                report = run_step(bench)
                self._succeeded(work)
                if report is not None:
                    self._finished(report, work)
                else:
                    schedule.rest(one.name, woken, pause)
            finish_rebuilding(bench)  # those that feed it may have rested after it

    def _succeeded(self, work: _Work) -> None:
        """Forget what it failed with before: a step was finished, or there was nothing to do."""
        work.progress.error = None
        work.retries.succeed()
        work.outage.is_over()
        self._schedule.recovered(work.processor.name)

    def _finished(self, report: StepReport, work: _Work) -> None:
        progress = work.progress
        progress.steps += not report.split
        progress.messages_in += report.messages_in
        progress.messages_out += report.messages_out
        progress.failed += report.failed
        progress.seconds += report.seconds
        self._schedule.finished_step(report.processor)
        if self._on_step is not None:
            self._on_step(report)

    def _wait_after(self, work: _Work, error: Exception) -> None:
        """Wait until a processor that failed is tried again, or raise what it failed with."""
        name = work.processor.name
        if isinstance(error, SparkStopped):
            raise error
        if has_stopped(self.spark):
            raise SparkStopped(self.pipeline.name) from error
        pause = work.retries.pause_after(error)
        if isinstance(error, StepSuperseded):
            log.warning("%s", error)
        elif isinstance(error, UnavailableError):
            work.outage.goes_on(error)
        elif is_passing(error):
            log.warning("%s waits: %s", name, first_line(error))
        else:
            work.progress.error = error
            self._schedule.failed(name)
            told = f"{work.told(error)}; it is tried again in {pause:g} s"
            log.error("%s", told, exc_info=_unexpected(error))
        self._schedule.pause(name, pause)


@dataclass
class _Work:
    """What a processor's thread works with."""

    processor: Processor
    progress: Progress
    memory: Memory
    locks: ProcessorLocks
    retries: Retries
    outage: Outage
    follows: bool

    def told(self, error: BaseException) -> str:
        """Return what stopped the processor, with its name."""
        if isinstance(error, StepFailed):
            return str(error)
        one = self.processor
        reason = str(error) if isinstance(error, PenstockError) else repr(error)
        return f"processor {one.name} ({one.location}) stopped: {reason}"


def _unexpected(error: BaseException) -> BaseException | None:
    """Return an error whose traceback is needed to understand it."""
    return None if isinstance(error, PenstockError | psycopg.Error) else error
