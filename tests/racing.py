"""What tests of concurrent writers share: threads that report back, and a look at who waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier
from typing import Any, TypeVar

import psutil
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


def pause() -> None:
    """Leave the processor to what is waited for, between two questions."""
    time.sleep(0.002)


def wait_until_blocked(url: str, count: int = 1) -> None:
    """Return once so many backends of the database wait for a lock."""
    wait_until(
        url,
        "select count(*) >= %s from pg_stat_activity"
        " where datname = current_database() and wait_event_type = 'Lock'",
        (count,),
    )


def wait_for_lock_or_end(url: str, call: Future[Any], count: int = 1) -> bool:
    """Return True once so many backends wait for a lock, False if the call has ended before."""
    with psycopg.connect(url, autocommit=True) as connection:
        while not call.done():
            row = connection.execute(
                "select count(*) from pg_stat_activity"
                " where datname = current_database() and wait_event_type = 'Lock'"
            ).fetchone()
            if row is not None and row[0] >= count:
                return True
            pause()
    return False


def wait_until_it_waits(url: str, call: Future[Any], count: int = 1) -> None:
    """Return once so many backends wait for a lock; fail if the call ends, which had to wait."""
    if not wait_for_lock_or_end(url, call, count):
        call.result()
        raise AssertionError("it did not wait")


def wait_until_gone(url: str, pid: int) -> None:
    """Return once that backend has ended. To wait for its process costs less than to ask."""
    with suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait(timeout=60)
    wait_until(url, "select not exists (select from pg_stat_activity where pid = %s)", (pid,))


def wait_until(url: str, question: str, arguments: Sequence[object] = ()) -> None:
    """Ask the server until the answer is true."""
    with psycopg.connect(url, autocommit=True) as connection:
        while connection.execute(question.encode(), arguments).fetchone() != (True,):
            pause()
