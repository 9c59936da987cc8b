"""A dispatcher as a process, for tests that stop or kill it: `python -m tests.outbox.dispatching`.

It notes what its handlers do in the table `handled`. What it does with a message is the payload's
`do`: nothing, `fail` for good, fail `once`, or `wait` until the test says go.

Each process imports this module, so it imports nothing of pytest's: that took most of the time.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg_pool import ConnectionPool

import penstock
from penstock import AsyncDispatcher, ClaimedMessage, Dispatcher, FailurePolicy, Store
from penstock.errors import PermanentFailure
from tests.forked_python import ROOT, ForkedProcess, penstock_server
from tests.racing import wait_until

if TYPE_CHECKING:
    from tests.both_ways import Way

TOPICS = ("step", "followed")


def prepare(store: Store) -> None:
    """Make the tables that handlers and tests meet in."""
    with psycopg.connect(store.settings.conninfo(), autocommit=True) as connection:
        connection.execute("create table handled (message_id uuid, pid int)")
        connection.execute("create table gone (said boolean)")


@contextmanager
def dispatching(
    url: str, way: Way, lease: float = 1.0, concurrency: int = 4, run: str = "run"
) -> Iterator[ForkedProcess]:
    """Run a dispatcher in a process of its own, killed at the end of the block."""
    process = start(url, way.is_async, lease, concurrency, run)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def start(
    url: str, is_async: bool = False, lease: float = 1.0, concurrency: int = 4, run: str = "run"
) -> ForkedProcess:
    """Start such a process."""
    form = "async" if is_async else "blocking"
    return penstock_server().start(
        *("-m", __name__, url, form, str(lease), str(concurrency), run),
        cwd=ROOT,
        stderr=subprocess.PIPE,
    )


def main(url: str, form: str, lease: str, concurrency: str, run: str) -> None:
    options: dict[str, Any] = {
        "lease": float(lease),
        "concurrency": int(concurrency),
        "polling_interval_ms": 20,
        "on_failure": FailurePolicy.retry(attempts=1000, delay=0.01, longest_delay=0.05),
    }
    with ConnectionPool(url, min_size=1, max_size=4) as pool:
        handler = partial(handle, pool, url)
        if form == "async":
            asyncio.run(dispatch_async(url, handler, run, options))
        else:
            dispatch(url, handler, run, options)


def dispatch(
    url: str, handler: Callable[[ClaimedMessage], None], run: str, options: dict[str, Any]
) -> None:
    with penstock.connect(url) as store:
        dispatcher = Dispatcher(store, **options)
        for topic in TOPICS:
            dispatcher.handler(topic)(handler)
        getattr(dispatcher, run)()


async def dispatch_async(
    url: str, handler: Callable[[ClaimedMessage], None], run: str, options: dict[str, Any]
) -> None:
    async with await penstock.connect_async(url) as store:
        dispatcher = AsyncDispatcher(store, **options)
        for topic in TOPICS:
            dispatcher.handler(topic)(lambda message: asyncio.to_thread(handler, message))
        await getattr(dispatcher, run)()


def handle(pool: ConnectionPool, url: str, message: ClaimedMessage) -> None:
    with pool.connection() as connection:
        connection.execute("insert into handled values (%s, %s)", [message.id, os.getpid()])
        connection.execute("select pg_sleep(0.01)")  # work, as far as anybody can tell
    do = message.payload.get("do") if isinstance(message.payload, dict) else None
    if do == "fail":
        raise PermanentFailure("it was to fail")
    if do == "once" and message.attempts == 1:
        raise RuntimeError("it was to fail once")
    if do == "wait":
        wait_until(url, "select exists (select from gone)")


if __name__ == "__main__":
    main(*sys.argv[1:])
