"""Who rests, who is woken: the turns of a run's processors.

A processor that finds nothing to read rests, and asks the database nothing more. It is woken when a
processor that feeds it has finished a step; and by the run's watch, which asks for all who rest at
once, in one statement, whether there are messages after their tailers. So the cost of a run at rest
does not depend on how many processors it has, and no message can be overlooked: what the watch asks
is where the tailers stand, not what has changed.

All state is under one lock; each processor waits for its own condition.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from penstock.pipeline.graph import Pipeline
from penstock.pipeline.readiness import CatchingUp


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
        self._catching_up = CatchingUp(pipeline)
        self._working = set(self._conditions)
        self._resting: set[str] = set()
        self._keeps = [one.name for one in processors if one.keeps is not None]
        self._complete: set[str] = set()  # projections whose feeders have caught up
        self._woken = dict.fromkeys(self._conditions, 0)  # how often, by processor
        self._steps = 0
        self._held = False
        #: the run is to end: set by anyone, also by a signal handler, which must take no lock
        self.is_over = False

    # For the processors

    def wait_to_begin(self, name: str) -> None:
        """Wait until those that fill its tables have caught up."""
        with self._lock:
            self._wait(name, lambda: self._catching_up.may_begin(name))

    def wait_for_turn(self, name: str) -> int | None:
        """Wait while no step may begin. Return how often it was woken; None if the run is over."""
        with self._lock:
            self._wait(name, lambda: not self._held)
            return None if self.is_over else self._woken[name]

    def rest(self, name: str, woken: int, seconds: float | None = None) -> None:
        """Wait until there may be something to do; not if it was woken since it began to look."""
        with self._lock:
            if self._woken[name] != woken:
                return
            self._resting.add(name)
            self._take_note_of_rest()
            self._wait(name, lambda: name not in self._resting, seconds)
            self._resting.discard(name)

    def pause(self, name: str, seconds: float) -> None:
        """Wait so long, or until the run is over."""
        with self._lock:
            self._wait(name, lambda: False, seconds)

    def finished_step(self, name: str) -> None:
        """Wake those that read what it publishes."""
        with self._lock:
            self._steps += 1
            self._wake(self._fed_by[name])

    def failed(self, name: str) -> None:
        """Let nobody wait for a processor that fails, until it has recovered."""
        with self._lock:
            self._catching_up.leave(name)
            self._notify(self._conditions)  # who waits for tables to be filled may begin
            self._take_note_of_rest()

    def recovered(self, name: str) -> None:
        """Count again on a processor that has failed before."""
        with self._lock:
            self._catching_up.come_back(name)

    def leave(self, name: str) -> None:
        """Do without a processor for the rest of the run."""
        with self._lock:
            self._working.discard(name)
            self.failed(name)
            self._watch.notify()

    def has_all(self, name: str) -> bool:
        """Return whether those that feed it have published all that it was to catch up with."""
        with self._lock:
            return self._catching_up.has_all(name)

    # For the watch

    def wait(self, seconds: float, *, until_all_rest: bool) -> bool:
        """Wait so long, or until it is over. Return whether some processor is still at work."""
        until = time.monotonic() + seconds
        with self._lock:
            while self._working and not (until_all_rest and self.all_rest()):
                left = until - time.monotonic()
                if left <= 0:
                    break
                self._watch.wait(left)
            return bool(self._working)

    def all_rest(self) -> bool:
        """Whether nobody has anything to do, unless it is woken."""
        with self._lock:
            return self._working <= self._resting

    @property
    def steps(self) -> int:
        """How many steps were finished in this run."""
        return self._steps

    def resting(self) -> list[str]:
        """Return who rests."""
        with self._lock:
            return sorted(self._resting)

    def wake(self, names: Iterable[str]) -> None:
        """Let processors look whether there is something to do."""
        with self._lock:
            self._wake(names)

    def hold(self, held: bool) -> None:
        """Let no step begin from now on; or again."""
        with self._lock:
            self._held = held
            if not held:
                self._notify(self._conditions)

    def end(self) -> None:
        """End the run once the steps in hand are finished."""
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
            self._resting.discard(name)
        self._notify(names)

    def _notify(self, names: Iterable[str]) -> None:
        for name in names:
            self._conditions[name].notify_all()

    def _take_note_of_rest(self) -> None:
        if self._catching_up.rest(self._resting):
            self._notify(self._conditions)  # who waits for tables to be filled may begin
            complete = {name for name in self._keeps if self._catching_up.has_all(name)}
            self._wake(complete - self._complete)  # a table that is rebuilt can be switched
            self._complete = complete
        if self.all_rest():
            self._watch.notify()
