"""Which processors have caught up, and so which may begin.

A processor is caught up when its last step found no input and everything upstream of it is caught
up. It stays so for the rest of the run. Processors that feed each other in a circle do not wait for
each other, and a processor that has left the run is not waited for.

A processor begins when those that fill its tables have caught up once. Otherwise, in a first run,
orders would be invoiced before the source of the same pipeline has loaded the products.

A table that is rebuilt replaces the live one when the processors that feed it have caught up. A
processor that has failed before does not count then: some of its messages are missing.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.pipeline.graph import Pipeline


class Readiness:
    """The processors that have caught up in a run. The caller holds the schedule's lock."""

    def __init__(self, pipeline: Pipeline) -> None:
        by_queue: dict[str, set[str]] = {}
        for one in pipeline.processors.values():
            for queue in one.publishes:
                by_queue.setdefault(queue, set()).add(one.name)
        feeders = {
            one.name: _all_of(by_queue, (*one.reads, *one.looks_up))
            for one in pipeline.processors.values()
        }
        before = _closure(feeders)
        self._feeders = {name: _outside(name, before) for name in before}
        self._fill_tables = {
            one.name: _outside(one.name, before) & _with_feeders(
                _all_of(by_queue, one.looks_up), before
            )
            for one in pipeline.processors.values()
        }  # fmt: skip
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


def _all_of(by_queue: dict[str, set[str]], queues: Iterable[str]) -> set[str]:
    return {name for queue in queues for name in by_queue.get(queue, ())}


def _closure(feeders: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return for each processor all that feed it, directly or through others."""
    before = {name: set(direct) for name, direct in feeders.items()}
    for _ in before:
        for found in before.values():
            found |= {far for near in list(found) for far in before[near]}
    return before


def _with_feeders(names: set[str], before: dict[str, set[str]]) -> set[str]:
    return names | {far for name in names for far in before[name]}


def _outside(name: str, before: dict[str, set[str]]) -> set[str]:
    """Return those that feed a processor and are not fed by it in turn."""
    return {feeder for feeder in before[name] if name not in before[feeder] and feeder != name}
