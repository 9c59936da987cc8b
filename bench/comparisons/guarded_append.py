"""Guarded appends on disjoint boundaries, beside eventsourcing's PostgreSQL DCB recorder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psycopg
from psycopg import sql

from bench import peers
from bench.measuring import Contender, Effort, measure
from bench.results import Comparison, ratio
from bench.server import Server, settle

SCRIPT = Path(__file__).parent.parent / "appenders.py"
UNIT = "messages/s"
#: by clients, then by messages in an append
AIMS: dict[int, dict[int, float | None]] = {1: {1: None}, 8: {1: 2.5, 100: 1.3}}
NOTES = [
    "Each client is a Python process with one connection. Every append is a decision on a boundary "
    "of its own, with two attributes or tags to a message; every commit waits for the disk.",
    "Theirs is eventsourcing 9.5, PostgresDCBRecorderTT, whose functions run on the server. Both "
    "databases are vacuumed and analyzed once they hold some messages, and autovacuum goes on. "
    "Their recorder appends one after the other, and each waits for the disk; ours wait together, "
    "until the processors are busy. So the ratio hangs on the disk: the longer a commit takes, the "
    "larger it is. Hence one more measurement, where on both sides PostgreSQL's `commit_delay` "
    "stands for a disk that takes a millisecond longer.",
]
SLOW_DISK_MICROSECONDS = 1_000


class Clients:
    """Client processes of one side, which append whenever they are told to."""

    def __init__(self, processes: list[subprocess.Popen[str]]) -> None:
        self._processes = processes

    def messages_per_second(self, seconds: float, batch: int) -> float:
        """Let all of them append for some seconds."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{seconds} {batch}\n")
            process.stdin.flush()
        return sum(float(_answer(process)) for process in self._processes)


@contextmanager
def clients(interpreter: str | Path, side: str, url: str, count: int) -> Iterator[Clients]:
    """Start clients that are connected and ready to append."""
    processes = []
    try:
        for number in range(count):
            command = [str(interpreter), str(SCRIPT), side, url, str(number)]
            processes.append(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            _answer(processes[-1])  # one after the other: theirs all make the tables
        yield Clients(processes)
    finally:
        for process in processes:
            process.communicate()


def compare(server: Server, effort: Effort) -> Iterator[Comparison]:
    """Measure one client and eight, appending one message, and eight appending a hundred."""
    ours, theirs = server.ours("guarding", 0), server.empty("recording")
    for count in (8,) if effort.quick else (1, 8):
        with (
            clients(sys.executable, "ours", ours, count) as our_clients,
            clients(peers.python(), "theirs", theirs, count) as their_clients,
        ):
            for side, url in ((our_clients, ours), (their_clients, theirs)):
                side.messages_per_second(effort.seconds, 1)
                settle(url)
            for batch, aim in AIMS[count].items():
                yield _compare(our_clients, their_clients, count, batch, aim, effort)
    if not effort.quick:
        yield _compare_on_a_slow_disk(ours, theirs, effort)
    server.drop("guarding", "recording")


def _compare_on_a_slow_disk(ours: str, theirs: str, effort: Effort) -> Comparison:
    for url in (ours, theirs):
        with psycopg.connect(url, autocommit=True) as connection:
            for name, value in (("commit_delay", SLOW_DISK_MICROSECONDS), ("commit_siblings", 0)):
                connection.execute(
                    sql.SQL("alter database {} set {} = {}").format(
                        sql.Identifier(connection.info.dbname), sql.Identifier(name), value
                    )
                )
    with (
        clients(sys.executable, "ours", ours, 8) as our_clients,
        clients(peers.python(), "theirs", theirs, 8) as their_clients,
    ):
        return _compare(our_clients, their_clients, 8, 1, None, effort, ", commits 1 ms slower")


def _compare(
    our_clients: Clients,
    their_clients: Clients,
    count: int,
    batch: int,
    aim: float | None,
    effort: Effort,
    how: str = "",
) -> Comparison:
    title = f"guarded append of {batch}, {count} client{'s' if count > 1 else ''}{how}"
    contenders = [
        Contender(name, partial(side.messages_per_second, effort.seconds, batch))
        for name, side in (("ours", our_clients), ("eventsourcing", their_clients))
    ]
    rounds = effort.rounds * (2 if aim and batch == 1 else 1)  # a disk's moods last for minutes
    own, other = measure(title, UNIT, contenders, rounds).values()
    return Comparison(title, [own, other], [ratio(own, other, at_least=aim)], NOTES)


def _answer(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"{process.args!r} ended with {process.wait()}")
    return line
