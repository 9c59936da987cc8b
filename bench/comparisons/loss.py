"""How many messages a reader misses that tails the log while eight writers write: `bench.loss`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench import peers
from bench.loss.race import LONGEST, READERS, WRITERS, Raced
from bench.measuring import Effort, tell
from bench.results import Comparison, Figure, Ratio
from bench.server import Server

ROOT = Path(__file__).parent.parent.parent
NOTES = [
    f"{WRITERS} writers write transactions of 1 to {LONGEST} messages, each to a stream of one of "
    f"{WRITERS} categories, while {READERS} readers tail the log; all are processes of their own. "
    "When the writers are done, the readers read on until nothing new comes. A message is missed "
    "if a reader never got it; shown is the reader that missed most.",
    "Message DB orders what is committed within a category, by a lock on it, and has a function to "
    "read a category. It has none for the whole log: that reader selects from its table by global "
    "position.",
    "eventsourcing 9.5's PostgreSQL recorder locks its whole table for every insert, so that one "
    "writes at a time. With its setting POSTGRES_ENABLE_DB_FUNCTIONS it takes no such lock.",
    "How much was written is no measure of speed: Penstock and Message DB send each message of a "
    "transaction by itself, eventsourcing sends them together.",
]


@dataclass(frozen=True, slots=True)
class Side:
    """One who is raced: its module, its name for people, and what makes its database."""

    module: str
    name: str
    database: Callable[[Server, str], str]
    peer: bool = False
    only_when_full: bool = False


def _ours(server: Server, name: str) -> str:
    return server.ours(name, 0)


def _genuine(server: Server, name: str) -> str:
    return server.genuine(name, 0)


SIDES = [
    Side("ours", "Penstock, $all", _ours),
    Side("message_db", "Message DB, whole log", _genuine),
    Side("message_db_categories", "Message DB, by category", _genuine, only_when_full=True),
    Side("recorder", "eventsourcing", Server.empty, peer=True, only_when_full=True),
    Side("recorder_functions", "eventsourcing, functions", Server.empty, peer=True),
]


def compare(server: Server, effort: Effort) -> Iterator[Comparison]:
    """Race all sides, and count over all rounds: a single loss is a loss."""
    seconds, rounds = (1, 1) if effort.quick else (8, 2)
    sides = [one for one in SIDES if not (effort.quick and one.only_when_full)]
    written, missed = dict.fromkeys(sides, 0), dict.fromkeys(sides, 0)
    for number in range(rounds):
        for side in sides:
            tell(f"loss: {side.name}, round {number + 1} of {rounds}")
            found = _race(server, side, seconds)
            written[side] += found.written
            missed[side] += max(found.missed)
    figures = [
        Figure(f"{side.name}: {what}", "messages", [float(count[side])])
        for side in sides
        for what, count in (("written", written), ("missed", missed))
    ]
    ratios = [
        Ratio(
            f"{side.name}: missed / written",
            [missed[side] / written[side]],
            at_most=0 if side is SIDES[0] else None,
        )
        for side in sides
    ]
    title, sizes = "Messages missed by a tailing reader", f"{rounds} races of {seconds} s"
    yield Comparison(title, figures, ratios, NOTES, sizes)


def _race(server: Server, side: Side, seconds: int) -> Raced:
    url = side.database(server, "loss")
    python = peers.python() if side.peer else sys.executable
    command = [str(python), "-m", "bench.loss.race", side.module, url, str(seconds)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    server.drop("loss")
    if done.returncode != 0:
        raise RuntimeError(f"{side.module} failed:\n{done.stderr}")
    return msgspec.json.decode(done.stdout, type=Raced)
