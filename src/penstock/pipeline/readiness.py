"""Who has caught up? A processor begins when those that fill its tables have, once.

Otherwise, in a first run, orders would be billed before the source of the same pipeline has brought
the products. Someone has caught up who found nothing to do after all those that feed them had
caught up, or who has left. Those that feed each other in a circle do not wait for each other.

A table that is rebuilt takes the live one's place when those that feed it have caught up; and one
that had to stop before has left some of it out.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.pipeline.graph import Pipeline


class CatchingUp:
    """Remembers who has caught up in a run. Whoever asks holds the runner's lock."""

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
        self._gave_up: set[str] = set()

    def rest(self, resting: Iterable[str]) -> bool:
        """Take note of those that have nothing to do at this moment. Return whether it is news."""
        known = len(self._caught_up)
        waiting = set(resting) - self._caught_up
        while found := {name for name in waiting if self._feeders[name] <= self._caught_up}:
            self._caught_up |= found
            waiting -= found
        return len(self._caught_up) > known

    def leave(self, name: str) -> None:
        """Take note of one that will do no more."""
        if name not in self._caught_up:
            self._gave_up.add(name)
        self._caught_up.add(name)

    def come_back(self, name: str) -> None:
        """Take note of one that had to stop, and goes on: it has to catch up first."""
        if name in self._gave_up:
            self._gave_up.discard(name)
            self._caught_up.discard(name)

    def has_all(self, name: str) -> bool:
        """Return whether those that feed it have published all that it was to catch up with."""
        return self._feeders[name] <= self._caught_up - self._gave_up

    def may_begin(self, name: str) -> bool:
        """Return whether those that fill its tables have caught up."""
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
