"""From a commit to its handler at rest, beside peers that listen; and what waiting costs others."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

from bench import peers
from bench.measuring import Contender, Effort, measure, tell
from bench.results import Comparison, Figure, Ratio, ratio
from bench.server import Server
from bench.writers import Writers, writers

SCRIPTS = Path(__file__).parent.parent / "waiting"
KINDS = ("consumer", "session", "worker", "dispatcher", "follower")
PEERS = {
    "eventsourcing's subscription": "subscription.py",
    "procrastinate": "procrastinate_waiting.py",
    "pgqueuer": "pgqueuer_waiting.py",
}
PAUSE = 0.1  # seconds between two messages: the waiter is at rest
WRITERS = 8
WATCHED = 30.0  # seconds, of waiters at rest
SETTLED = 15.0  # seconds after which the server has counted everything
NOTES = [
    "Two processes: one writes a message every 100 ms, the other waits. From the moment at which "
    "the writing call has returned to the moment at which the handler is called.",
]
IDLE_NOTES = [
    "Ten consumers, sessions, workers, dispatchers and followers each in one process; the "
    "transactions that the server counts while nothing is written.",
]
LOAD_NOTES = [
    f"{WRITERS} processes write single messages as fast as they can. The fifty waiters wait for "
    "something else. The last contender sends its notification inside the writing transaction.",
    "The writers run from the first slice to the last: the connection that a store opens for its "
    "wake-ups at its first write is none of the cost.",
]


def compare(server: Server, effort: Effort) -> Iterator[Comparison]:
    """Measure milliseconds, queries a second, and messages a second."""
    yield _latencies(server, 20 if effort.quick else 200)
    yield _idle(server)
    yield _load(server, effort)


def _latencies(server: Server, count: int) -> Comparison:
    title = f"From a commit to its handler at rest, {count} messages"
    figures = [
        _latency(server, f"our {kind}", sys.executable, "ours.py", kind, count) for kind in KINDS
    ]
    figures += [
        _latency(server, name, peers.python(), script, "-", count) for name, script in PEERS.items()
    ]
    worst = [Figure(f"{one.name}, the worst", "ms", [max(one.values)]) for one in figures]
    ratios = [
        Ratio(f"{one.name} / 5 ms", [one.median / 5], at_most=1) for one in figures[: len(KINDS)]
    ]
    ours = {one.name: one for one in figures}
    for kind, name in (
        ("our follower", "eventsourcing's subscription"),
        ("our dispatcher", "procrastinate"),
        ("our dispatcher", "pgqueuer"),
    ):
        values = [ours[kind].median / ours[name].median]
        ratios.append(Ratio(f"{kind} / {name}", values, at_most=1))
    return Comparison(title, [*figures, *worst], ratios, NOTES)


def _latency(
    server: Server, name: str, python: str | Path, script: str, kind: str, count: int
) -> Figure:
    tell(f"commit to handler: {name}")
    database = "waking_" + "".join(c if c.isalnum() else "_" for c in name)
    command = [str(python), str(SCRIPTS / script), server.empty(database)]
    subprocess.run([*command, "install"], check=True)
    with _process([*command, "wait", kind]) as waiter:
        assert waiter.stdout.readline().strip() == "ready"
        arguments = [*command, "write", kind, str(count), str(PAUSE)]
        written = subprocess.run(arguments, check=True, capture_output=True, text=True).stdout
        handled = [waiter.stdout.readline() for _ in range(count)]
    server.drop(database)
    pairs = zip(written.split(), handled, strict=True)
    return Figure(name, "ms", [(float(after) - float(before)) * 1000 for before, after in pairs])


def _idle(server: Server) -> Comparison:
    url = server.ours("sleeping", 0)
    figures = [
        Figure("with wake-ups", "queries/s", [_queries_per_second(url, "waking")]),
        Figure("polling", "queries/s", [_queries_per_second(url, "polling")]),
    ]
    server.drop("sleeping")
    limit = Ratio("with wake-ups / one a second", figures[0].values, at_most=1)
    return Comparison("Fifty waiters at rest in one process", figures, [limit], IDLE_NOTES)


def _queries_per_second(url: str, kind: str) -> float:
    tell(f"fifty waiters at rest: {kind}")
    with _sleepers(url, kind), psycopg.connect(url, autocommit=True) as connection:
        time.sleep(SETTLED)
        before, began = _transactions(connection), time.monotonic()
        time.sleep(WATCHED)
        after, ended = _transactions(connection), time.monotonic()
    return (after - before) / (ended - began)


def _transactions(connection: psycopg.Connection[Any]) -> int:
    connection.execute("select pg_stat_clear_snapshot()")
    [(count,)] = connection.execute(
        "select xact_commit + xact_rollback from pg_stat_database"
        " where datname = current_database()"
    )
    return int(count)


def _load(server: Server, effort: Effort) -> Comparison:
    url = server.ours("ringing")

    def beside_waiters(processes: Writers) -> float:
        with _sleepers(url, "waking"):
            time.sleep(3.0)  # until they sleep
            return processes.messages_per_second(effort.seconds)

    with ExitStack() as stack:
        silent, waking, inside = (
            stack.enter_context(writers(url, WRITERS, **options))
            for options in ({"wake_up": False}, {}, {"wake_up": False, "notify": True})
        )
        contenders = {
            "no wake-ups, no waiters": partial(silent.messages_per_second, effort.seconds),
            "wake-ups, no waiters": partial(waking.messages_per_second, effort.seconds),
            "wake-ups, fifty waiters": partial(beside_waiters, waking),
            "NOTIFY in the transaction, no waiters": partial(
                inside.messages_per_second, effort.seconds
            ),
        }
        figures = measure(
            "writers and sleeping waiters",
            "messages/s",
            [Contender(*one) for one in contenders.items()],
            rounds=effort.rounds,
        )
    server.drop("ringing")
    off, none, fifty, notifying = figures.values()
    ratios = [
        ratio(none, off, at_least=0.95),
        ratio(fifty, none, at_least=0.95),
        ratio(notifying, off),
    ]
    title = f"{WRITERS} writers beside fifty sleeping waiters"
    return Comparison(title, list(figures.values()), ratios, LOAD_NOTES)


@contextmanager
def _sleepers(url: str, kind: str) -> Iterator[None]:
    command = [sys.executable, str(SCRIPTS / "ours.py"), url, "sleep", kind]
    with _process(command) as process:
        assert process.stdout.readline().strip() == "asleep"
        yield


@contextmanager
def _process(command: Sequence[str]) -> Iterator[Any]:
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
