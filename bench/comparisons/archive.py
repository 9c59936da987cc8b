"""Moving most of a log to the archive while others write, and what is left of the table."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean

import psycopg

import penstock
from bench.measuring import Contender, Effort, measure, tell
from bench.results import Comparison, Figure, ratio
from bench.server import Server, fill, settle
from bench.writers import Writers, writers
from penstock.log.archive import MAX_LOAD, archive
from penstock.log.bloated_indexes import index_sizes, rebuild
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
    "last message of each stream stays: so at its end the archive rebuilds the indexes.",
]
REBUILDING = [
    f"{WRITERS} processes write one message at a time, while all indexes of the log are rebuilt "
    "one after the other, as the archive does at its end: `reindex index concurrently`, "
    f"{MAX_LOAD:.0%} of the time. Pauses are part of it.",
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
    yield Comparison(
        "What an archive leaves",
        [per_row, per_archived, was, became],
        [ratio(per_archived, per_row, at_most=0.2), ratio(became, was, at_most=1)],
        NOTES,
        f"{messages:,} messages",
    )
    yield _rebuilding(url, messages, 1 if effort.quick else 3)
    server.drop("archived")


def _rebuilding(url: str, messages: int, rounds: int) -> Comparison:
    """Measure writers beside the rebuilding of all indexes."""
    with writers(url, WRITERS) as busy:
        contenders = [
            Contender("writers alone", lambda: busy.messages_per_second(10)),
            Contender("writers beside the rebuilding", lambda: _beside_rebuilding(url, busy)),
        ]
        title = "Writers beside the rebuilding of indexes"
        figures = measure(title, "messages/s", contenders, rounds, warm_up=False)
    alone, beside = figures.values()
    ratios = [ratio(beside, alone, at_least=0.8)]
    what = f"after {messages:,} messages"
    return Comparison(title, [alone, beside], ratios, REBUILDING, what)


def _beside_rebuilding(url: str, busy: Writers) -> float:
    """Return the messages per second until all indexes are rebuilt."""
    figures = []
    with psycopg.connect(url, autocommit=True) as connection, ThreadPoolExecutor(1) as thread:
        names = [one.name for one in index_sizes(connection)]
        rebuilding = thread.submit(rebuild, connection, names, max_load=MAX_LOAD)
        while not rebuilding.done():
            figures.append(busy.messages_per_second(1))
        assert rebuilding.result() == names
    return fmean(figures)


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
