"""Moving most of a log to the archive while others write, and what is left of the table."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

import penstock
from bench.measuring import Contender, Effort, measure, tell
from bench.results import Comparison, Figure, ratio
from bench.server import Server, fill, settle
from bench.writers import writers
from penstock.log.archive import archive
from penstock.log.retention import Keep

MESSAGES = 5_000_000
MESSAGES_WHEN_QUICK = 200_000
SHARE = 0.8
WRITERS = 4
NOTES = [
    f"A log of so many messages, of which {SHARE:.0%} are moved to the archive by a process of its "
    f"own, while {WRITERS} processes write one message at a time. In turns, the archive is stopped "
    "(SIGSTOP) or goes on.",
    "The table with its indexes is measured before, and after as many messages were written as a "
    "twentieth of the log. A page of an index is used again when nothing of it is left, and the "
    "last message of each stream stays: so it is measured once more with the indexes rebuilt.",
]
_SIZE = "select pg_total_relation_size('message_store.messages')"


def compare(server: Server, effort: Effort) -> Iterator[Comparison]:
    """Measure writers beside an archive, and the sizes before and after."""
    messages = MESSAGES_WHEN_QUICK if effort.quick else MESSAGES
    tell(f"archive: making a log of {messages:,} messages")
    url = server.ours("archived", messages)
    before = _size(url)
    with tempfile.TemporaryDirectory() as warehouse:
        with _archiving(url, Path(warehouse), messages) as process, writers(url, WRITERS) as busy:
            seconds = max(1, 3 * effort.seconds)

            def beside() -> float:
                process.go_on()
                try:
                    return busy.messages_per_second(seconds)
                finally:
                    process.stop()

            contenders = [
                Contender("writers alone", lambda: busy.messages_per_second(seconds)),
                Contender("writers beside the archive", beside),
            ]
            figures = measure("archive", "messages/s", contenders, effort.rounds, warm_up=False)
            process.go_on()
            process.join()
        files = _size_of_files(Path(warehouse))
    alone, beside_it = figures.values()
    yield Comparison(
        "Writers beside an archive",
        [alone, beside_it],
        [ratio(beside_it, alone, at_least=0.8)],
        NOTES,
        f"{messages:,} messages",
    )
    settle(url)  # autovacuum is due by now
    fill(url, "message_store.messages", messages // 20, "later")
    moved = messages * SHARE
    per_row = Figure("table and indexes before", "bytes/message", [before / messages])
    per_archived = Figure("archive", "bytes/message", [files / moved])
    was = Figure("size before", "bytes", [before])
    became = Figure("size after", "bytes", [_size(url)])
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("reindex table concurrently message_store.messages")
    rebuilt = Figure("size after, indexes rebuilt", "bytes", [_size(url)])
    yield Comparison(
        "What an archive leaves",
        [per_row, per_archived, was, became, rebuilt],
        [
            ratio(per_archived, per_row, at_most=0.2),
            ratio(became, was, at_most=1),
            ratio(rebuilt, was, at_most=1),
        ],
        NOTES,
        f"{messages:,} messages",
    )
    server.drop("archived")


class _Process:
    """A process that archives, and can be stopped for a while."""

    def __init__(self, pid: int, join: multiprocessing.process.BaseProcess) -> None:
        self._pid = pid
        self._process = join

    def stop(self) -> None:
        """Stop it until `go_on`."""
        if self._process.is_alive():
            os.kill(self._pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on."""
        if self._process.is_alive():
            os.kill(self._pid, signal.SIGCONT)

    def join(self) -> None:
        """Wait until it has moved everything."""
        self._process.join()


@contextmanager
def _archiving(url: str, warehouse: Path, messages: int) -> Iterator[_Process]:
    arguments = (url, warehouse.as_uri(), int(messages * SHARE))
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_archive, args=arguments, daemon=True)
    process.start()
    assert process.pid is not None
    running = _Process(process.pid, process)
    running.stop()
    try:
        yield running
    finally:
        running.go_on()
        process.join()


def _archive(url: str, warehouse: str, up_to: int) -> None:
    with penstock.connect(url, warehouse=warehouse) as store:
        archive(store.context, "account", Keep(from_position=up_to + 1))


def _size(url: str) -> float:
    with psycopg.connect(url) as connection:
        row = connection.execute(_SIZE).fetchone()
    assert row is not None
    return float(row[0])


def _size_of_files(folder: Path) -> float:
    return float(sum(one.stat().st_size for one in folder.rglob("*") if one.is_file()))
