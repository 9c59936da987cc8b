"""The turns of a run's processors: which are idle or caught up, and when they run again.

A processor that finds nothing to read becomes idle and asks the database nothing more. It is woken
when a processor that feeds it has finished a step; and by the run's watch, which asks in one
statement, for all idle processors at once, whether there are messages after their tailers. So an
idle run costs the same however many processors it has. And no message can be missed: the watch
compares positions, and does not rely on having seen a change.

All state is under one lock, and whoever waits is notified of every change.

A processor is caught up when its last step found no input and everything upstream of it is caught
up. It stays so for the rest of the run. Processors that feed each other in a circle do not wait for
each other, and a processor that has left the run is not waited for.

A processor begins when those that fill its tables have caught up once. Otherwise, in a first run,
orders would be invoiced before the source of the same pipeline has loaded the products.

A table that is rebuilt replaces the live one when the processors that feed it have caught up. A
processor that has failed before does not count then: some of its messages are missing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from penstock.pipeline.graph import Pipeline


class Readiness:
    """The processors that have caught up in a run. The caller holds the schedule's lock."""

    def __init__(self, pipeline: Pipeline) -> None:
        processors = pipeline.processors.values()

        def writers(queues: Iterable[str]) -> set[str]:
            return {one.name for one in processors if not set(queues).isdisjoint(one.publishes)}

        before = {one.name: writers((*one.reads, *one.looks_up)) for one in processors}
        for _ in before:  # those that feed it directly, and then those behind them
            for found in before.values():
                found.update(*[before[near] for near in found])
        # of those, the ones that it does not feed in turn
        self._feeders = {
            name: {one for one in found if name not in before[one] and one != name}
            for name, found in before.items()
        }
        self._fill_tables = {
            one.name: self._feeders[one.name]
            & writers(one.looks_up).union(*[before[near] for near in writers(one.looks_up)])
            for one in processors
        }
        for one in processors:
            if one.archives is not None:  # it begins after those that read what it moves
                moved = one.archives.category
                self._fill_tables[one.name] = {
                    each.name for each in processors if moved in (*each.reads, *each.looks_up)
                }
        self._caught_up: set[str] = set()
        self._failed: set[str] = set()

    def idle(self, names: Iterable[str]) -> bool:
        """Record the processors that are idle now. Return whether more have caught up."""
        known = len(self._caught_up)
        waiting = set(names) - self._caught_up
        while found := {name for name in waiting if self._feeders[name] <= self._caught_up}:
            self._caught_up |= found
            waiting -= found
        return len(self._caught_up) > known

    def leave(self, name: str) -> None:
        """Record that a processor will run no more steps."""
        if name not in self._caught_up:
            self._failed.add(name)
        self._caught_up.add(name)

    def come_back(self, name: str) -> None:
        """Record that a processor goes on after a failure: it has to catch up first."""
        if name in self._failed:
            self._failed.discard(name)
            self._caught_up.discard(name)

    def is_fed(self, name: str) -> bool:
        """Return whether those that feed a processor have caught up, and none of them failed."""
        return self._feeders[name] <= self._caught_up - self._failed

    def may_begin(self, name: str) -> bool:
        """Return whether those that fill a processor's tables have caught up."""
        return self._fill_tables[name] <= self._caught_up


class Schedule:
    """The turns of the processors of one run."""

    def __init__(self, pipeline: Pipeline) -> None:
        processors = pipeline.processors.values()
        self._changed = threading.Condition()
        self._fed_by = {
            one.name: [each.name for each in processors if set(one.publishes) & set(each.reads)]
            for one in processors
        }
        self._readiness = Readiness(pipeline)
        self._working = set(pipeline.processors)
        self._idle: set[str] = set()
        self._rebuilding = [one.name for one in processors if one.rebuilds]
        self._fed: set[str] = set()  # projections whose feeders have caught up
        self._woken = dict.fromkeys(pipeline.processors, 0)  # how often, by processor
        self._held = False
        self._is_notified = False
        #: how many steps were finished in this run
        self.steps = 0
        #: the run is to end: set from any thread, and by a signal handler, which must take no lock
        self.is_over = False

    # For the processors

    def wait_to_begin(self, name: str) -> None:
        """Wait until the processors that fill its tables have caught up."""
        self._wait(lambda: self._readiness.may_begin(name))

    def wait_for_turn(self, name: str) -> int | None:
        """Wait while no step may begin. Return how often it was woken; None if the run is over."""
        with self._changed:
            self._wait(lambda: not self._held)
            return None if self.is_over else self._woken[name]

    def be_idle(self, name: str, woken: int, seconds: float | None = None) -> None:
        """Wait until there may be something to read, unless it was woken since `woken`."""
        with self._changed:
            if self._woken[name] != woken:
                return
            self._idle.add(name)
            self._note_idle()
            self._wait(lambda: name not in self._idle, seconds)
            self._idle.discard(name)

    def pause(self, seconds: float) -> None:
        """Wait for this time, or until the run is over."""
        self._wait(lambda: False, seconds)

    def finished_step(self, name: str) -> None:
        """Wake the processors that read what it publishes."""
        with self._changed:
            self.steps += 1
            self.wake(self._fed_by[name])

    def failed(self, name: str) -> None:
        """Let no processor wait for one that fails, until it has recovered."""
        with self._changed:
            self._readiness.leave(name)
            self._note_idle()

    def recovered(self, name: str) -> None:
        """Wait again for a processor that has failed before."""
        with self._changed:
            self._readiness.come_back(name)

    def leave(self, name: str) -> None:
        """Go on without a processor for the rest of the run."""
        with self._changed:
            self._working.discard(name)
            self.failed(name)

    def is_fed(self, name: str) -> bool:
        """Return whether those that feed a processor have caught up, and none of them failed."""
        with self._changed:
            return self._readiness.is_fed(name)

    # For the watch

    def wait(self, seconds: float, *, until_all_idle: bool) -> bool:
        """Wait for this time, or until the run is over. Return whether a processor still works."""
        with self._changed:
            self._changed.wait_for(
                lambda: not self._working or (until_all_idle and self.all_idle()), seconds
            )
            return bool(self._working)

    def wait_until_notified(self, seconds: float) -> bool:
        """Wait for `notify`, at most this long. Return whether it was called, or the run ends."""
        with self._changed:
            notified = self._changed.wait_for(
                lambda: self._is_notified or self.is_over or not self._working, seconds
            )
            self._is_notified = False
            return notified

    def notify(self) -> None:
        """End `wait_until_notified`: there may be something to read. Any thread may call it."""
        with self._changed:
            self._is_notified = True
            self._changed.notify_all()

    def all_idle(self) -> bool:
        """Whether no processor has anything to do, unless it is woken."""
        with self._changed:
            return self._working <= self._idle

    def idle(self) -> list[str]:
        """Return the idle processors."""
        with self._changed:
            return sorted(self._idle)

    def wake(self, names: Iterable[str]) -> None:
        """Let processors check whether there is something to read."""
        with self._changed:
            for name in names:
                self._woken[name] += 1
                self._idle.discard(name)
            self._changed.notify_all()

    def hold(self, held: bool) -> None:
        """Let no step begin from now on; or allow it again."""
        with self._changed:
            self._held = held
            self._changed.notify_all()

    def end(self) -> None:
        """End the run when the steps under way are finished."""
        with self._changed:
            self.is_over = True
            self.wake(self._woken)

    def _wait(self, done: Callable[[], bool], seconds: float | None = None) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self.is_over or done(), seconds)

    def _note_idle(self) -> None:
        if self._readiness.idle(self._idle):
            fed = {name for name in self._rebuilding if self._readiness.is_fed(name)}
            self.wake(fed - self._fed)  # a table that is rebuilt can be switched
            self._fed = fed
        # all may be idle now, and those that wait for their tables may begin
        self._changed.notify_all()
