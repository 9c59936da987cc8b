"""A gate on a task's way: whoever comes to it stands there, in Spark's process, until it is opened.

It is an advisory lock on a server that no test harms. Who stands at it is known by process id.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import psycopg

from tests.spark.faults.waiting import Running, wait_until

Passing = Callable[[Iterator[Any]], Iterator[Any]]
_keys = itertools.count(1)
_STANDING = "application_name like %s || ' %%' and wait_event_type = 'Lock'"


class Gate:
    """A gate that is shut until it is opened, once."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.key = next(_keys)
        self._holder = psycopg.connect(url, autocommit=True)
        self._holder.execute("select pg_advisory_lock(%s)", (self.key,))

    def wait_for(self, count: int = 1, *running: Running) -> list[int]:
        """Return the processes that stand at the gate, once there are so many."""
        wait_until(
            self.url,
            f"select count(*) >= %s from pg_stat_activity where {_STANDING}",
            (count, f"gate-{self.key}"),
            *running,
        )
        rows = self._holder.execute(
            f"select application_name from pg_stat_activity where {_STANDING}".encode(),
            (f"gate-{self.key}",),
        )
        return [int(name.split()[1]) for (name,) in rows]

    def open(self) -> None:
        """Let all pass, now and later."""
        self._holder.close()


def standing_at(url: str, key: int, partition: int) -> Passing:
    """Return what lets rows pass, those of one partition only when the gate is open."""

    def stand(batches: Iterator[Any]) -> Iterator[Any]:
        import os

        import psycopg
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is not None and context.partitionId() == partition:
            name = f"gate-{key} {os.getpid()}"
            with psycopg.connect(url, application_name=name) as connection:
                connection.execute("select pg_advisory_xact_lock_shared(%s)", (key,))
        yield from batches

    return stand


def failing_at_first(partition: int) -> Passing:
    """Return what lets rows pass, but fails after those of one partition at the first attempt."""

    def fail(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        yield from batches
        if context is not None and (context.partitionId(), context.attemptNumber()) == (
            partition,
            0,
        ):
            raise RuntimeError("the first attempt fails")

    return fail
