"""Killed processes, processes that offer concurrently, and the cost of a call in a long queue."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import psycopg
import pytest

import penstock
from penstock import CommitMode, Record, Store
from tests.forked_python import ForkedProcess, penstock_server
from tests.racing import wait_until_blocked

POLL_AND_HANG = """
import sys, penstock
url, name, mode = sys.argv[1:]
session = penstock.connect(url).queue(name).create_consumer("worker", penstock.CommitMode(mode))
print(session.poll().offset, flush=True)
sys.stdin.readline()
"""

COMMIT_AND_HANG = """
import sys, penstock
url, name, mode = sys.argv[1:]
session = penstock.connect(url).queue(name).create_consumer("worker", penstock.CommitMode(mode))
offset = session.poll().offset
session.commit()
print(offset, flush=True)
sys.stdin.readline()
"""

OFFER = """
import sys, penstock
url, name, producer = sys.argv[1:]
with penstock.connect(url) as store:
    queue = store.queue(name)
    for number in range(1000):
        queue.offer(number, key=producer)
"""


@contextmanager
def running(script: str, *arguments: str) -> Iterator[ForkedProcess]:
    """A process of its own, killed at the end of the block."""
    with penstock_server().start(
        *("-c", script, *arguments), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: ForkedProcess) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


class TestKilled:
    @pytest.fixture
    def shared_store(self, shared_stores: dict[bool, Store]) -> Store:
        """A blocking store: the sessions that are killed are in other processes."""
        return shared_stores[False]

    @pytest.mark.parametrize(
        ("mode", "expected"),
        [
            pytest.param(CommitMode.MANUAL_COMMIT, "a", id="manual: it comes again"),
            pytest.param(CommitMode.AUTO_COMMIT, "b", id="auto: at most once"),
        ],
    )
    def test_between_poll_and_commit(
        self, shared_url: str, shared_store: Store, mode: CommitMode, expected: str
    ) -> None:
        queue = shared_store.queue(f"orders-{uuid4()}")
        queue.offer_many(["a", "b"])
        with running(POLL_AND_HANG, shared_url, queue.name, mode.value) as process:
            assert said(process) == "0"
            process.kill()

        record = queue.create_consumer("worker", mode).poll()

        assert record is not None
        assert record.value == expected

    def test_after_the_commit(self, shared_url: str, shared_store: Store) -> None:
        queue = shared_store.queue(f"orders-{uuid4()}")
        queue.offer_many(["a", "b"])
        manual = CommitMode.MANUAL_COMMIT
        with running(COMMIT_AND_HANG, shared_url, queue.name, manual.value) as process:
            assert said(process) == "0"
            process.kill()

        record = queue.create_consumer("worker", manual).poll()

        assert record is not None
        assert record.value == "b"


@pytest.mark.parametrize("mode", CommitMode)
def test_a_poll_whose_connection_dies_returns_the_record_it_would_have(
    shared_url: str, shared_store: Store, mode: CommitMode
) -> None:
    queue = shared_store.queue(f"orders-{uuid4()}")
    queue.offer_many(["a", "b"])
    session = queue.create_consumer("worker", mode)
    with psycopg.connect(shared_url) as holder, ThreadPoolExecutor(1) as threads:
        holder.execute("lock table penstock.sessions in access exclusive mode")
        polling = threads.submit(session.poll)
        wait_until_blocked(shared_url)

        holder.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and wait_event_type = 'Lock'"
        )
        holder.rollback()
        record = polling.result()

    assert record is not None
    assert record.offset == 0
    assert session.committed_offset() == (1 if mode is CommitMode.AUTO_COMMIT else 0)


def test_two_processes_offer_and_a_session_reads_all_in_order(
    shared_url: str, shared_stores: dict[bool, Store]
) -> None:
    queue = shared_stores[False].queue(f"orders-{uuid4()}")
    session = queue.create_consumer("worker", CommitMode.MANUAL_COMMIT, read_ahead=True)

    with (
        running(OFFER, shared_url, queue.name, "one") as one,
        running(OFFER, shared_url, queue.name, "other") as other,
    ):
        records = [session.poll(60) for _ in range(2000)]
        assert (one.wait(), other.wait()) == (0, 0)

    found = [record for record in records if record is not None]
    assert [record.offset for record in found] == list(range(2000))
    for producer in ("one", "other"):
        assert [one.value for one in found if one.key == producer] == list(range(1000))
    assert session.poll() is None


def test_a_record_that_is_not_committed_yet_holds_back_no_other_queue(shared_store: Store) -> None:
    slow, quick = (shared_store.queue(f"orders-{uuid4()}") for _ in range(2))
    session = quick.create_consumer("worker")
    with shared_store.transaction() as tx:
        tx.queue(slow.name).offer("slow")

        with shared_store.transaction() as other:
            other.connection.execute("set local lock_timeout = '2s'")
            other.queue(quick.name).offer("quick")

        record = session.poll()
    assert record is not None
    assert record.value == "quick"


class TestCost:
    CALLS = (
        "penstock.poll_session(%(stream)s, 'worker', 1, %(middle)s, true)",
        "penstock.poll_session(%(stream)s, 'worker', 1, %(middle)s, false)",
        "penstock.poll_session(%(stream)s, 'worker', 1, %(tail)s, false)",
        "penstock.commit_session(%(stream)s, 'worker', 1, %(middle)s, true)",
        "penstock.seek_session(%(stream)s, 'worker', 1, 0, true)",
        "penstock.seek_session(%(stream)s, 'worker', 1, null, true)",
        "penstock.committed_offset(%(stream)s, 'worker', 1)",
    )

    @pytest.fixture
    def store(self, database_url: str) -> Iterator[Store]:
        with penstock.connect(database_url) as store:
            yield store

    def test_does_not_grow_with_the_queue(self, database_url: str, store: Store) -> None:
        queue = store.queue("orders")
        queue.create_consumer("worker")
        queue.offer_many(Record(number) for number in range(1000))
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute("update penstock.sessions set epoch = 1")
            connection.execute("analyze message_store.messages")
            short = [pages_read(connection, call, queue.stream_name, 1000) for call in self.CALLS]
            for _ in range(4):
                queue.offer_many(Record(number) for number in range(10_000))
            long = [pages_read(connection, call, queue.stream_name, 41_000) for call in self.CALLS]

        grown = [after - before for before, after in zip(short, long, strict=True)]
        assert max(grown) <= 6, dict(zip(self.CALLS, zip(short, long, strict=True), strict=True))


def pages_read(connection: psycopg.Connection[Any], call: str, stream_name: str, tail: int) -> int:
    """How many pages a call reads, once its plan and the catalog are cached."""
    arguments = {"stream": stream_name, "middle": tail // 2, "tail": tail}
    pages = 0
    for _ in range(8):
        cursor = connection.execute(
            f"explain (analyze, buffers, format json) select * from {call}".encode(), arguments
        )
        row = cursor.fetchone()
        assert row is not None
        plan = row[0][0]["Plan"]
        pages = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    return pages
