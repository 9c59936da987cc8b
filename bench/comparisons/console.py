"""Fifty viewers of the console's live pages: what they cost the database, and those who write."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import psutil
import psycopg

import penstock
from bench.comparisons.claims import ReadingTaken
from bench.measuring import Contender, Effort, measure, tell
from bench.pgbench import WRITE_MESSAGE, transactions_per_second
from bench.results import Comparison, Figure, Ratio, ratio
from bench.server import Server, fill, settle

VIEWERS, WRITERS = 50, 8
MESSAGES, PARTITIONS = 1_000_000, 100_000
SCRIPT = Path(__file__).parent.parent / "console" / "viewers.py"
PATHS = (
    *("/", "/log", "/log/messages?target=account", "/consumers", "/groups"),
    *("/groups/group?group_id=bench", "/groups/group?group_id=bench&state=ready", "/outbox"),
    *("/dead-letters", "/pipelines"),
)
SETTLED = 3.0  # seconds until all pages have been pushed once
COST_NOTES = [
    "The console and its viewers are processes of their own on the same machine. Ten pages are "
    "watched. Queries are the transactions that the server counts; busy is the processor time of "
    "the console's connections, in percent of one core.",
]
WRITE_NOTES = [
    f"pgbench writes single messages from {WRITERS} connections as fast as it can, on the same "
    "cores as the console and its viewers.",
]


def compare(server: Server, effort: Effort) -> Iterator[Comparison]:
    """Measure queries a second and busy time, at rest and under writes, and messages a second."""
    scale = 100 if effort.quick else 1
    url = _filled(server, MESSAGES // scale, PARTITIONS // scale)
    yield _costs(url, 5.0 if effort.quick else 30.0, scale)
    yield _writes(url, effort, scale)
    server.drop("console")


def _filled(server: Server, messages: int, partitions: int) -> str:
    tell(f"console: making {messages:,} messages and {partitions:,} partitions")
    url = server.ours("console", 0)
    fill(url, "message_store.messages", messages - partitions)
    with penstock.connect(url) as store:
        store.groups.register("bench")
        for first in range(0, partitions, 10_000):
            numbers = range(first, min(first + 10_000, partitions))
            store.append([ReadingTaken(device=str(number)) for number in numbers])
        _claim_and_release(store)
        with psycopg.connect(url, autocommit=True) as connection:
            route = "select penstock.route(g) from penstock.consumer_groups g"
            while connection.execute(route).fetchone() == (True,):
                pass
        _claim_and_release(store)  # as workers do that run: claims begin where the last one was
        for topic in ("mail", "bill"):
            store.outbox.enqueue_many([penstock.NewMessage(topic, {"n": n}) for n in range(100)])
    settle(url)
    return url


def _claim_and_release(store: penstock.Store) -> None:
    claim = store.groups.claim_next(
        "bench", partition_by="device", handled_types=[ReadingTaken], batch_size=1
    )
    assert claim is not None
    store.groups.release(claim)


@dataclass(frozen=True)
class Console:
    """The console's process, and its address."""

    address: str
    pid: int

    @contextmanager
    def watched(self, count: int, *paths: str) -> Iterator[None]:
        """Let viewers watch pages meanwhile."""
        command = [sys.executable, str(SCRIPT), self.address, str(count), *paths]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as viewers:
            assert _pipe(viewers.stdout).readline().strip() == "watching"
            time.sleep(SETTLED)
            yield
            output, _ = viewers.communicate(timeout=60)
        sent = json.loads(output)
        tell(f"console: viewers were sent {sent['events']:,} events, {sent['bytes']:,} bytes")

    def busy_seconds(self) -> float:
        """Return the processor time of the console's own process."""
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)


@contextmanager
def _console(url: str) -> Iterator[Console]:
    with subprocess.Popen(
        [sys.executable, "-m", "penstock", "console", "--port", "0"],
        env={**os.environ, "PENSTOCK_URL": url},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            lines = iter(_pipe(process.stderr).readline, "")
            found = next(m for m in (re.search(r"http://\S+", line) for line in lines) if m)
            yield Console(found[0], process.pid)
        finally:
            process.terminate()


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def _costs(url: str, seconds: float, scale: int) -> Comparison:
    shapes = {
        "one viewer": (1, PATHS[:1]),
        f"{VIEWERS} viewers of one page": (VIEWERS, PATHS[:1]),
        f"{VIEWERS} viewers of {len(PATHS)} pages": (VIEWERS, PATHS),
    }
    queries, busy, own = [], [], []
    for name, (count, paths) in shapes.items():
        tell(f"console: {name} for {seconds:g} s")
        with (
            _console(url) as console,
            console.watched(count, *paths),
            psycopg.connect(url, autocommit=True) as connection,
        ):
            before, began = _spent(connection, console), time.monotonic()
            time.sleep(seconds)
            after, took = _spent(connection, console), time.monotonic() - began
        rates = [(end - start) / took for start, end in zip(before, after, strict=True)]
        queries.append(Figure(name, "queries/s", [rates[0]]))
        busy.append(Figure(f"{name}, the database", "% of a core", [rates[1] * 100]))
        own.append(Figure(f"{name}, the console", "% of a core", [rates[2] * 100]))
    one, many, spread = queries
    ratios = [
        ratio(many, one, at_most=1.2),
        Ratio(f"{spread.name} / 100 queries/s", [spread.median / 100], at_most=1),
        Ratio(f"{busy[2].name} / 10 %", [busy[2].median / 10], at_most=1),
    ]
    title = f"The console's live pages, {VIEWERS} viewers"
    return Comparison(title, [*queries, *busy, *own], ratios, COST_NOTES, _sizes(scale))


def _spent(connection: psycopg.Connection[Any], console: Console) -> tuple[float, float, float]:
    """Return transactions, and the seconds that the database and the console were busy."""
    connection.execute("select pg_stat_clear_snapshot()")
    [(count,)] = connection.execute(
        "select xact_commit + xact_rollback from pg_stat_database"
        " where datname = current_database()"
    )
    pids = connection.execute(
        "select pid from pg_stat_activity where datname = current_database()"
        " and backend_type = 'client backend' and pid <> pg_backend_pid()"
    )
    clocks = [Path(f"/proc/{pid}/schedstat") for (pid,) in pids]
    busy = sum(int(one.read_text().split()[0]) for one in clocks) / 1_000_000_000
    return float(count), busy, console.busy_seconds()


def _writes(url: str, effort: Effort, scale: int) -> Comparison:
    def slice(viewers: int) -> float:
        write = partial(transactions_per_second, url, WRITE_MESSAGE, WRITERS, 5 * effort.seconds)
        if not viewers:
            return write()
        with _console(url) as console, console.watched(viewers, *PATHS):
            return write()

    contenders = [
        Contender("no console", partial(slice, 0)),
        Contender(f"{VIEWERS} viewers", partial(slice, VIEWERS)),
    ]
    figures = measure("writes beside the console", "messages/s", contenders, effort.rounds)
    alone, watched = figures.values()
    title = f"{WRITERS} writers beside {VIEWERS} viewers of the console"
    ratios = [ratio(watched, alone, at_least=0.95)]
    return Comparison(title, list(figures.values()), ratios, WRITE_NOTES, _sizes(scale))


def _sizes(scale: int) -> str:
    return f"{MESSAGES // scale:,} messages, {PARTITIONS // scale:,} partitions"
