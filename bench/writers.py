"""Writers in Python: processes of their own, each with a `Store` of one connection."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import penstock
from bench.server import DATA, METADATA
from penstock.database.operation import Operation, call
from penstock.log.write import write_message


class Writers:
    """Some processes that write as fast as they can whenever they are told to."""

    def __init__(self, pipes: list[Connection[Any, Any]]) -> None:
        self._pipes = pipes
        self._slices = itertools.count(1)

    def messages_per_second(self, seconds: float) -> float:
        """Let all of them write for some seconds, and return how many messages that made."""
        slice_number = next(self._slices)
        for pipe in self._pipes:
            pipe.send((slice_number, seconds))
        return sum(float(pipe.recv()) for pipe in self._pipes)


@contextmanager
def writers(
    url: str, count: int, *, wake_up: bool = True, notify: bool = False
) -> Iterator[Writers]:
    """Start processes that are connected and ready to write.

    With `notify` they send a notification inside each writing transaction.
    """
    context = multiprocessing.get_context("spawn")
    pipes: list[Connection[Any, Any]] = []
    processes = []
    for number in range(count):
        ours, theirs = context.Pipe()
        process = context.Process(
            target=_write, args=(url, number, theirs, wake_up, notify), daemon=True
        )
        process.start()
        pipes.append(ours)
        processes.append(process)
    for pipe in pipes:
        pipe.recv()
    try:
        yield Writers(pipes)
    finally:
        for pipe in pipes:
            pipe.send(None)
        for process in processes:
            process.join(timeout=30)


def _notifying(write: Operation[int]) -> Operation[None]:
    """Return the write with a notification in the same statement, and so in one transaction."""
    [statement] = write.statements
    sql = "select pg_notify('bench', message_store.write_message(%s, %s, %s, %s, %s, %s)::text)"
    return call("write_and_notify", sql, statement.arguments, lambda _: None)


def _write(url: str, number: int, pipe: Connection[Any, Any], wake_up: bool, notify: bool) -> None:
    data, metadata = json.loads(DATA), json.loads(METADATA)
    with penstock.connect(url, pool_max_size=1, wake_up=wake_up) as store:
        store.message_store_version()
        pipe.send("ready")
        while order := pipe.recv():
            slice_number, seconds = order
            began = time.perf_counter()
            written = 0
            while time.perf_counter() < began + seconds:
                stream_name = f"account-python-{slice_number}-{number}-{written // 10}"
                if notify:
                    operation = write_message(
                        store.context, stream_name, "Deposited", data, metadata
                    )
                    store.run(_notifying(operation))
                else:
                    store.write_message(stream_name, "Deposited", data, metadata)
                written += 1
            pipe.send(written / (time.perf_counter() - began))
