"""The turns of a run's processors: which are idle, and when they run again.

A processor that finds nothing to read becomes idle and asks the database nothing more. It is woken
when a processor that feeds it has finished a step; and by the run's watch, which asks in one
statement, for all idle processors at once, whether there are messages after their tailers. So an
idle run costs the same however many processors it has. And no message can be missed: the watch
compares positions, and does not rely on having seen a change.

All state is under one lock; each processor waits for its own condition.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from penstock.pipeline.graph import Pipeline
from penstock.pipeline.readiness import Readiness


class Schedule:
    """The turns of the processors of one run."""

    def __init__(self, pipeline: Pipeline) -> None:
        processors = pipeline.processors.values()
        self._lock = threading.RLock()
        self._conditions = {one.name: threading.Condition(self._lock) for one in processors}
        self._watch = threading.Condition(self._lock)
        self._fed_by = {
            one.name: [each.name for each in processors if set(one.publishes) & set(each.reads)]
            for one in processors
        }
        self._readiness = Readiness(pipeline)
        self._working = set(self._conditions)
        self._idle: set[str] = set()
        self._projections = [one.name for one in processors if one.keeps is not None]
        self._fed: set[str] = set()  # projections whose feeders have caught up
        self._woken = dict.fromkeys(self._conditions, 0)  # how often, by processor
        self._steps = 0
        self._held = False
        #: the run is to end: set from any thread, and by a signal handler, which must take no lock
        self.is_over = False

    # For the processors

    def wait_to_begin(self, name: str) -> None:
        """Wait until the processors that fill its tables have caught up."""
        with self._lock:
            self._wait(name, lambda: self._readiness.may_begin(name))

    def wait_for_turn(self, name: str) -> int | None:
        """Wait while no step may begin. Return how often it was woken; None if the run is over."""
        with self._lock:
            self._wait(name, lambda: not self._held)
            return None if self.is_over else self._woken[name]

    def be_idle(self, name: str, woken: int, seconds: float | None = None) -> None:
        """Wait until there may be something to read, unless it was woken since `woken`."""
        with self._lock:
            if self._woken[name] != woken:
                return
            self._idle.add(name)
            self._note_idle()
            self._wait(name, lambda: name not in self._idle, seconds)
            self._idle.discard(name)

    def pause(self, name: str, seconds: float) -> None:
        """Wait for this time, or until the run is over."""
        with self._lock:
            self._wait(name, lambda: False, seconds)

    def finished_step(self, name: str) -> None:
        """Wake the processors that read what it publishes."""
        with self._lock:
            self._steps += 1
            self._wake(self._fed_by[name])

    def failed(self, name: str) -> None:
        """Let no processor wait for one that fails, until it has recovered."""
        with self._lock:
            self._readiness.leave(name)
            self._notify(self._conditions)  # those that wait for their tables may begin
            self._note_idle()

    def recovered(self, name: str) -> None:
        """Wait again for a processor that has failed before."""
        with self._lock:
            self._readiness.come_back(name)

    def leave(self, name: str) -> None:
        """Go on without a processor for the rest of the run."""
        with self._lock:
            self._working.discard(name)
            self.failed(name)
            self._watch.notify()

    def is_fed(self, name: str) -> bool:
        """Return whether those that feed a processor have caught up, and none of them failed."""
        with self._lock:
            return self._readiness.is_fed(name)

    # For the watch

    def wait(self, seconds: float, *, until_all_idle: bool) -> bool:
        """Wait for this time, or until the run is over. Return whether a processor still works."""
        until = time.monotonic() + seconds
        with self._lock:
            while self._working and not (until_all_idle and self.all_idle()):
                left = until - time.monotonic()
                if left <= 0:
                    break
                self._watch.wait(left)
            return bool(self._working)

    def all_idle(self) -> bool:
        """Whether no processor has anything to do, unless it is woken."""
        with self._lock:
            return self._working <= self._idle

    @property
    def steps(self) -> int:
        """How many steps were finished in this run."""
        return self._steps

    def idle(self) -> list[str]:
        """Return the idle processors."""
        with self._lock:
            return sorted(self._idle)

    def wake(self, names: Iterable[str]) -> None:
        """Let processors check whether there is something to read."""
        with self._lock:
            self._wake(names)

    def hold(self, held: bool) -> None:
        """Let no step begin from now on; or allow it again."""
        with self._lock:
            self._held = held
            if not held:
                self._notify(self._conditions)

    def end(self) -> None:
        """End the run when the steps under way are finished."""
        with self._lock:
            self.is_over = True
            self._wake(self._conditions)
            self._watch.notify()

    # Under the lock

    def _wait(self, name: str, done: Callable[[], bool], seconds: float | None = None) -> None:
        until = None if seconds is None else time.monotonic() + seconds
        while not self.is_over and not done():
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return
            self._conditions[name].wait(left)

    def _wake(self, names: Iterable[str]) -> None:
        for name in names:
            self._woken[name] += 1
            self._idle.discard(name)
        self._notify(names)

    def _notify(self, names: Iterable[str]) -> None:
        for name in names:
            self._conditions[name].notify_all()

    def _note_idle(self) -> None:
        if self._readiness.idle(self._idle):
            self._notify(self._conditions)  # those that wait for their tables may begin
            fed = {name for name in self._projections if self._readiness.is_fed(name)}
            self._wake(fed - self._fed)  # a table that is rebuilt can be switched
            self._fed = fed
        if self.all_idle():
            self._watch.notify()
