"""Worker processes for the stress test: `python -m tests.groups.stressed_workers URL COUNT`.

Keeps so many workers alive, each a process, in place of any that is killed. SIGTERM ends them in
good order; the exit code is that of the worst.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator

import penstock
from penstock import Claim, FailurePolicy, Store, TypedMessage, Worker
from tests.groups.school import SCHOOL

LEASE = 1.0


class Handled(TypedMessage, type="message.handled"):
    """What a worker appends for each message, in the same transaction as the acknowledgement."""

    partition_key: str
    source: int


def work(url: str) -> None:
    """Handle partitions until SIGTERM."""
    with penstock.connect(url, pool_max_size=2, max_write_seconds=2) as store:
        Worker(
            store,
            "group",
            lambda claim: handle(store, claim),
            partition_by=["course_name", "user_id"],
            handled_types=SCHOOL,
            batch_size=3,
            lease=LEASE,
            on_failure=FailurePolicy.park(attempts=1000, delay=0),
            polling_interval_ms=20,
        ).run()


def handle(store: Store, claim: Claim) -> Iterator[Handled]:
    """Look at the partition, as a decider would, and tell of each message."""
    store.read_partition(claim.partition_value, SCHOOL)
    for message in claim.messages:
        yield Handled(partition_key=claim.partition_key, source=message.global_position)


def start(url: str) -> int:
    """Start a worker process and return its id."""
    if (pid := os.fork()) > 0:
        return pid
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        work(url)
        os._exit(0)
    except BaseException as error:
        sys.stderr.write(f"worker {os.getpid()}: {error!r}\n")
        os._exit(1)


def main(url: str, count: int) -> int:
    """Keep `count` workers alive until SIGTERM."""
    logging.disable()  # of claims that were taken over, as they should be
    workers = {start(url) for _ in range(count)}
    stopping, worst = False, 0

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True
        for pid in workers:
            os.kill(pid, signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
    while workers:
        pid, status = os.wait()
        workers.discard(pid)
        code = os.waitstatus_to_exitcode(status)
        early = stopping and code == -signal.SIGTERM  # it had not begun to work
        worst = max(worst, code if code >= 0 or not stopping or early else 1)
        if not stopping and code == -signal.SIGKILL:
            workers.add(start(url))
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
