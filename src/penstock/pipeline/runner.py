"""Running a pipeline: its processors side by side, each one step at a time.

Each processor has a thread (`processor_loop`); one with nothing to read is idle until it is woken
(`schedule`). The calling thread watches: it asks the database, for all idle processors at once,
whether there are messages for them. It asks on the connection that holds the run's lock, so it
notices when that is lost.

`run_until_idle` ends when all processors are idle and no message waits for any of them, `run_once`
when each has run a step. `run` goes on until it is stopped. To stop is to finish the steps that are
under way; SIGTERM and SIGINT do that too.

A request to start from scratch (`admin/restarts.py`) is answered before the first step. `run` also
answers later ones: it finishes the steps under way, lets the processors begin again, and starts new
threads.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg
from pyspark import InheritableThread
from pyspark.sql import SparkSession

from penstock.admin import restarts
from penstock.database.waiters import of_category, of_stream
from penstock.errors import (
    PenstockError,
    PipelineRunning,
    RunFailed,
    RunLockLost,
    SparkStopped,
    UnavailableError,
    ValidationError,
)
from penstock.log.waiter import Waiter
from penstock.loops.durations import Duration, seconds
from penstock.loops.outage import Outage
from penstock.loops.signals import stopping_on_signals
from penstock.message import names
from penstock.pipeline import state
from penstock.pipeline.checks import check as check_graph
from penstock.pipeline.checks import check_lake, check_schemas
from penstock.pipeline.connection import ProcessorLocks, RunLock, bare_connection, lock_run
from penstock.pipeline.frames import DRIVER_ROWS, queue_target
from penstock.pipeline.graph import Pipeline
from penstock.pipeline.hooks import check_hooks, read_hooks
from penstock.pipeline.processor_loop import ProcessorLoop, Progress, Retries, Run, Timing, Until
from penstock.pipeline.restart import restart
from penstock.pipeline.schedule import Schedule
from penstock.pipeline.snapshot import Remembered
from penstock.pipeline.step import StepReport
from penstock.spark.connections import DatabaseRef
from penstock.spark.read import planning
from penstock.spark.session import has_stopped, session
from penstock.store import Store

log = logging.getLogger(__name__)
RETRY_FOR = 300.0  # seconds
_FINISHING = 0.1  # seconds between two looks whether all threads have ended


@dataclass
class Summary:
    """What a run has done, by processor."""

    pipeline: str
    progress: dict[str, Progress] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def succeeded(self) -> bool:
        """Whether no processor failed."""
        return not self.errors

    @property
    def errors(self) -> dict[str, BaseException]:
        """What stopped processors, by their names."""
        return {name: one.error for name, one in self.progress.items() if one.error is not None}

    def check(self) -> None:
        """Raise `RunFailed` if a processor failed."""
        if errors := self.errors:
            texts = {name: str(error) or repr(error) for name, error in errors.items()}
            raise RunFailed(self.pipeline, texts) from next(iter(errors.values()))


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
        timing: Timing | None = None,
    ) -> None:
        """Check the pipeline, and prepare to run it.

        Args:
            pipeline: what to run.
            store: the database that it reads and writes.
            spark: the session to use; without it, one is created.
            on_step: called after each step.
            driver_rows: up to so many messages, the driver alone reads and stages a step; beyond
                that, the executors do.
            timing: how often a run polls and how long it retries, if not as usual.
        """
        if not isinstance(pipeline, Pipeline):
            raise ValidationError("pipeline", pipeline, "a Pipeline")
        if not isinstance(driver_rows, int) or driver_rows < 0:
            raise ValidationError("driver_rows", driver_rows, "a whole number, 0 or more")
        check_graph(pipeline)
        check_hooks(pipeline, store.context)
        self.pipeline = pipeline
        self.database = DatabaseRef(store.settings)
        self.spark = spark or session(f"penstock {pipeline.name}")
        if getattr(self.spark, "_jsparkSession", None) is None:
            expected = (
                "a SparkSession whose driver is this process: the steps of a pipeline do not run "
                "through Spark Connect, where only the format penstock works"
            )
            raise ValidationError("spark", self.spark, expected)
        check_schemas(pipeline)
        uses_lake = any(one.uses_lake for one in pipeline.processors.values())
        self._catalog = check_lake(store.settings) if uses_lake else None
        self._store = store
        self._context = store.context
        self._on_step = on_step
        self._driver_rows = driver_rows
        self._timing = timing or Timing()
        self._schedule = Schedule(pipeline)
        self._stopped = False

    def run(
        self, *, wait: bool = False, check: bool = True, retry_for: Duration = RETRY_FOR
    ) -> Summary:
        """Process what is in the log and what comes, until `stop()`, SIGTERM or SIGINT.

        Args:
            wait: wait until another run of this pipeline has ended; otherwise it is refused.
            check: raise `RunFailed` if a processor failed; else the summary has the errors.
            retry_for: seconds, or a timedelta, for which a processor that fails is tried again
                before the run ends.
        """
        longest = seconds("retry_for", retry_for, most=math.inf)
        return self._execute(Until.STOPPED, wait, check, longest)

    def run_until_idle(self, *, wait: bool = False, check: bool = True) -> Summary:
        """Process all that is in the log now, and what the pipeline publishes meanwhile.

        The arguments are those of `run`.
        """
        return self._execute(Until.IDLE, wait, check)

    def run_once(self, *, wait: bool = False, check: bool = True) -> Summary:
        """Run at most one step of each processor. The arguments are those of `run`."""
        return self._execute(Until.ONE_STEP, wait, check)

    def stop(self) -> None:
        """End the run after the steps under way. Any thread, and a signal handler, may call it."""
        self._stopped = True
        self._schedule.is_over = True

    def from_scratch(self, *, wait: bool = False) -> None:
        """Let every processor except the sources begin again, at the next run.

        Tables of projections are rebuilt beside the live ones; streams publish anew.
        """
        with self._locked(wait=wait) as (_, locks):
            if not self._restart(locks):
                raise PipelineRunning(self.pipeline.name, "its steps are not finished yet")

    def _restart(self, locks: ProcessorLocks) -> bool:
        """Let the processors begin again. Return whether they do: not if it was stopped."""
        with locks.connection(*self.pipeline.processors) as connection:
            if connection is not None:
                restart(connection, self.pipeline)
            return connection is not None

    def _execute(self, until: Until, wait: bool, check: bool, retry_for: float = 0.0) -> Summary:
        started = time.monotonic()
        processors = self.pipeline.processors.values()
        progress = {one.name: Progress(one.name, one.kind) for one in processors}
        with self._locked(wait=wait) as (lock, locks):
            begins_again = True
            while begins_again:
                self._renew_schedule()
                self._restart_if_requested(lock, locks)
                run = Run(
                    self.pipeline, self._store, self.database, self.spark, self._schedule, locks,
                    until, retry_for, self._timing, read_hooks(self._context), self._driver_rows,
                    self._on_step, self._context, self._catalog,
                )  # fmt: skip
                self._run_loops(run, lock, progress)
                begins_again = run.begins_again and run.failure is None
        if run.failure is not None:
            raise run.failure
        summary = Summary(self.pipeline.name, progress, time.monotonic() - started)
        if check:
            summary.check()
        return summary

    def _renew_schedule(self) -> None:
        """Begin with nobody idle; whoever has stopped the run meanwhile has stopped this, too."""
        self._schedule = Schedule(self.pipeline)
        if self._stopped:  # a later `stop()` finds the new schedule
            self._schedule.is_over = True

    def _restart_if_requested(self, lock: RunLock, locks: ProcessorLocks) -> None:
        """Begin from scratch if that is requested, or write down why it cannot be done."""
        name = self.pipeline.name
        try:
            if not lock.connection.run(restarts.is_requested(name)):
                return
            try:
                if self._restart(locks):
                    log.warning("%s begins from scratch, as requested", name)
            except UnavailableError:
                raise
            except (PenstockError, psycopg.Error) as error:
                log.error("%s does not begin from scratch: %s", name, error)
                lock.connection.run(restarts.answer(name, restarts.REFUSED, reason=str(error)))
        except UnavailableError as error:  # the request stays open: the watch finds it again
            log.warning("%s does not begin from scratch yet: %s", name, error)

    def _run_loops(self, run: Run, lock: RunLock, progress: Mapping[str, Progress]) -> None:
        try:
            _Watch(run, lock, self._start_loops(run, progress)).run_until_over()
        finally:
            run.schedule.end()

    @contextmanager
    def _locked(self, *, wait: bool) -> Iterator[tuple[RunLock, ProcessorLocks]]:
        """Hold the lock of a new run, which a signal stops."""
        self._stopped = False
        self._schedule = Schedule(self.pipeline)
        run = self.pipeline.name, lambda: self._schedule.is_over, self._context.interceptors
        with stopping_on_signals(self.stop):
            lock = lock_run(self.database, *run, wait=wait)
            try:
                yield lock, ProcessorLocks(self.database, *run)
            finally:
                lock.release()

    def _start_loops(self, run: Run, progress: Mapping[str, Progress]) -> dict[str, ProcessorLoop]:
        ends = self._ends() if run.until is Until.IDLE else {}
        loops = {
            one.name: ProcessorLoop(run, one, progress[one.name], Remembered(ends=ends))
            for one in self.pipeline.processors.values()
        }
        for loop in loops.values():
            InheritableThread(target=loop, daemon=True).start()
        return loops

    def _ends(self) -> dict[str, int]:
        """Return where the queues that no processor writes end now: it reads no further."""
        written = {queue for one in self.pipeline.processors.values() for queue in one.publishes}
        read = {queue for one in self.pipeline.processors.values() for queue in one.reads}
        with bare_connection(self.database) as connection:
            return {
                queue: connection.run(
                    planning.head(queue_target(queue, (), connection.lake_options))
                )
                for queue in read - written
            }


@dataclass(frozen=True)
class _ScheduleWakeup:
    """What the watch sleeps on."""

    schedule: Schedule

    def wake(self) -> None:
        self.schedule.notify()

    def wait(self, seconds: float) -> bool:
        return self.schedule.wait_until_notified(seconds)


class _Watch:
    """Wakes processors that have messages to read, and checks the run's lock and Spark."""

    def __init__(self, run: Run, lock: RunLock, loops: Mapping[str, ProcessorLoop]) -> None:
        queues = {queue for one in run.pipeline.processors.values() for queue in one.reads}
        self._waiter = Waiter(
            run.store,
            [
                *(of_category(names.category(queue)) for queue in queues),
                *(of_stream(queue) for queue in queues if not names.is_category(queue)),
            ],
            wakeup=_ScheduleWakeup(run.schedule),
        )
        self._run = run
        self._lock = lock
        self._loops = loops
        self._is_endless = run.until is Until.STOPPED
        self._lost = Retries(run.retry_for, run.timing)
        self._outage = Outage(f"pipeline {run.pipeline.name}", log)
        self._steps_at_last_look = -1
        self._has_found = False  # messages to read, at the last look
        self._next_question = time.monotonic()  # whether it is to begin from scratch

    def run_until_over(self) -> None:
        """Return when the run is over and no thread is in a step any more."""
        with self._waiter:
            self._watch()
        self._run.schedule.end()
        while self._run.schedule.wait(_FINISHING, until_all_idle=False):
            pass  # they finish the steps under way

    def _watch(self) -> None:
        schedule = self._run.schedule
        while self._wait() and not schedule.is_over:
            self._waiter.looks()
            if has_stopped(self._run.spark):
                self._run.failure = SparkStopped(self._run.pipeline.name)
                return
            try:
                if self._is_to_begin_again():
                    self._run.begins_again = True
                    return
                if not self._look():
                    return
                self._lost.succeed()
                self._outage.is_over()
            except PenstockError as error:
                self._regain(error)

    def _wait(self) -> bool:
        """Wait until it is time to look. Return whether a processor still works."""
        schedule, timing = self._run.schedule, self._run.timing
        if not self._is_endless:
            return schedule.wait(timing.lock_check_interval, until_all_idle=True)
        longest = time.monotonic() + timing.idle_lock_check_interval
        self._waiter.sleep(
            timing.poll_interval,
            due=longest,
            found=self._has_found,
            ended=lambda: schedule.is_over,
        )
        return schedule.wait(0.0, until_all_idle=False)

    def _is_to_begin_again(self) -> bool:
        """Return whether `run` finds a request to start from scratch; it asks once a second."""
        now = time.monotonic()
        if not self._is_endless or now < self._next_question:
            return False
        self._next_question = now + self._run.timing.idle_lock_check_interval
        return self._lock.connection.run(restarts.is_requested(self._run.pipeline.name))

    def _look(self) -> bool:
        """Wake processors that have messages to read. Return whether the run goes on."""
        schedule = self._run.schedule
        all_idle = schedule.all_idle()
        ends = all_idle and not self._is_endless  # unless there are messages to read
        if ends and schedule.steps == self._steps_at_last_look:
            return False  # they were woken, and found nothing
        if not all_idle and not self._is_endless:
            self._with_messages([])  # only to see that the lock is held
            return True
        self._steps_at_last_look = schedule.steps
        idle = schedule.idle()
        found = self._with_messages([self._loops[name] for name in idle])
        self._has_found = bool(found)
        if ends and not found:
            return False
        if self._is_endless:  # what they have just read may be older than what woke the watch
            busy = self._loops.keys() - set(idle)
            found += [name for name in busy if self._loops[name].processor.reads]
        schedule.wake(found)
        return True

    def _with_messages(self, idle: Sequence[ProcessorLoop]) -> list[str]:
        """Return which of these processors have something to read."""
        readers = {loop.processor.name: loop.remembered.tailers for loop in idle}
        ends = idle[0].remembered.ends if idle else {}
        found = self._lock.connection.run(state.messages_to_read(readers, ends))
        return [loop.processor.name for loop in idle
                if loop.processor.can_read(found[loop.processor.name])]  # fmt: skip

    def _regain(self, error: PenstockError) -> None:
        """Take the run's lock again, and let no step begin before."""
        schedule = self._run.schedule
        schedule.hold(True)
        try:
            pause = self._lost.pause_after(error)
        except PenstockError:
            self._run.fail(error)
            return
        self._outage.goes_on(error)
        try:
            self._lock.regain()
            schedule.hold(False)
        except RunLockLost as lost_for_good:
            self._run.fail(lost_for_good)
        except PenstockError:
            schedule.wait(pause, until_all_idle=False)
