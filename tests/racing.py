"""What tests of concurrent writers share: threads that report back, and a look at who waits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

import psycopg

Result = TypeVar("Result")


def at_once(*calls: Callable[[], Result]) -> list[Result | Exception]:
    """Start all calls together, each in a thread; return what each returned or raised."""
    barrier = Barrier(len(calls))

    def run(call: Callable[[], Result]) -> Result | Exception:
        barrier.wait()
        try:
            return call()
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(run, calls))


def wait_until_blocked(url: str, count: int = 1) -> None:
    """Return once so many backends of the database wait for a lock."""
    wait_until(
        url,
        "select count(*) >= %s from pg_stat_activity"
        " where datname = current_database() and wait_event_type = 'Lock'",
        (count,),
    )


def wait_until_gone(url: str, pid: int) -> None:
    """Return once that backend has ended."""
    wait_until(url, "select not exists (select from pg_stat_activity where pid = %s)", (pid,))


def wait_until(url: str, question: str, arguments: Sequence[object] = ()) -> None:
    """Ask the server until the answer is true."""
    with psycopg.connect(url, autocommit=True) as connection:
        while connection.execute(question.encode(), arguments).fetchone() != (True,):
            pass
