"""Enqueue no-op messages, then process them: ours beside procrastinate and pgqueuer.

Each slice is a process that enqueues in batches of 1,000 and then works until nothing is left. One
contender is ours with a transaction held open elsewhere for the length of the run, so that nothing
that was handled can be vacuumed away. The peers are set up as their own documentation advises.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psycopg

from bench import peers
from bench.measuring import Contender, Effort, measure
from bench.results import Comparison, ratio
from bench.server import Server, settle

WORKERS = 10
PATIENCE = 600  # seconds for a slice
SCRIPTS = Path(__file__).parent.parent / "workers"
NOTES = [
    "The seconds to enqueue and to process are counted, not those to start Python. Every contender "
    f"runs in one process with {WORKERS} workers and its own way to enqueue many at once; handlers "
    "do nothing.",
    "Autovacuum is on. Before each slice the database is also vacuumed and analyzed, which is not "
    "counted: a queue in use has been, and a slice is too short for autovacuum to come round. "
    "Every commit waits for the disk. For the last contender a transaction is held open on the "
    "server from before the first message to after the last: vacuum may remove nothing.",
    "procrastinate defers with batch_defer_async and deletes jobs that succeeded (delete_jobs, see "
    "its guide to production). It fetches jobs one by one, each in a transaction of its own, "
    "whatever its concurrency: jobs that do nothing show what a fetch costs. Without vacuum each "
    "fetch would also pass over the index entries of all jobs before.",
    "pgqueuer runs on asyncpg and uvloop, with its autovacuum settings (`pgq autovac`), a pool to "
    "enqueue and a connection of its own for the manager, and a batch size of 100 for short jobs.",
]


def compare(server: Server, effort: Effort) -> Iterator[Comparison]:
    """Measure the four of them."""
    messages = 1_000 if effort.quick else 5_000
    contenders = [
        _contender(server, "ours", sys.executable, "ours.py", messages),
        _contender(server, "procrastinate", peers.python(), "procrastinate_jobs.py", messages),
        _contender(server, "pgqueuer", peers.python(), "pgqueuer_jobs.py", messages),
        _contender(server, "ours, vacuum held back", sys.executable, "ours.py", messages),
    ]
    title = f"Outbox, {messages:,} no-op messages, {WORKERS} workers"
    with _held_back(server.url(_database("ours, vacuum held back"))):
        figures = measure(
            title, "messages/s", contenders, 1 if effort.quick else 7, warm_up=not effort.quick
        )
    server.drop(*(_database(one.name) for one in contenders))
    ours, procrastinate, pgqueuer, held = figures.values()
    ratios = [
        ratio(ours, procrastinate, at_least=3),
        ratio(ours, pgqueuer, at_least=1),
        ratio(held, ours, at_least=0.8),
    ]
    yield Comparison(title, list(figures.values()), ratios, NOTES)


def _contender(
    server: Server, name: str, python: str | Path, script: str, messages: int
) -> Contender:
    url = server.empty(_database(name))
    command = [str(python), str(SCRIPTS / script), url]
    _run([*command, "install"])
    return Contender(name, partial(_slice, url, command, messages))


def _slice(url: str, command: list[str], messages: int) -> float:
    settle(url)
    seconds = json.loads(_run([*command, str(messages), str(WORKERS)]))
    return messages / float(seconds["enqueue"] + seconds["process"])


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    if done.returncode != 0:
        raise RuntimeError(f"{Path(command[1]).name} failed:\n{done.stderr}")
    return done.stdout


@contextmanager
def _held_back(url: str) -> Iterator[None]:
    """Keep a snapshot, and a transaction id, from before all that happens meanwhile."""
    with psycopg.connect(url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("select pg_current_xact_id() from (select 1) one")
        yield
        connection.rollback()


def _database(name: str) -> str:
    return "outbox_" + name.replace(",", "").replace(" ", "_")
