"""The faults: one after the other, at random, some of which last a while and overlap with others.

The seed decides which fault comes next, which process it hits, and for how long. What the
actors do at that moment is up to the machine: so a seed repeats the faults, and not the run.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from uuid import uuid4

import psycopg

from tests.chaos.names import BEGUN, COMMITTED, ROLLED_BACK, TRANSFER
from tests.chaos.processes import ActorProcesses
from tests.chaos.server import Server

#: how often each comes, one to another
WEIGHTS = {
    "process killed": 8,
    "backend ended": 6,
    "process paused": 4,
    "transaction left open": 3,
    "connections used up": 2,
    "server restarted": 1,
    "server crashed": 1,
}
MOST_CONNECTIONS = 150
#: whoever holds a lock may be paused, and then only this process can resume it
IMPATIENT = "-c lock_timeout=1000 -c statement_timeout=5000"
Connection = psycopg.Connection[tuple[object, ...]]


@dataclass(frozen=True)
class Lasting:
    """A fault that is under way, and how to end it."""

    until: float
    end: Callable[[], None]


class FaultInjector:
    """Injects faults into the actors and their server."""

    def __init__(self, server: Server, processes: ActorProcesses, ledger: Path, seed: int) -> None:
        self._server = server
        self._processes = processes
        self._ledger = ledger
        self._random = Random(f"{seed} faults")
        self._lasting: list[Lasting] = []
        self.counts = Counter(dict.fromkeys(WEIGHTS, 0))

    @property
    def url(self) -> str:
        return self._server.url

    def inject(self) -> float:
        """End faults that have lasted long enough, inject one, and return the pause after it.

        A fault that another one makes impossible just now is not counted.
        """
        self._end(time.monotonic())
        fault = self._draw()
        with suppress(psycopg.OperationalError):
            getattr(self, f"_{fault.replace(' ', '_')}")()
            self.counts[fault] += 1
        return self._random.uniform(0.2, 1.5)

    def end_all(self) -> None:
        """End the faults that are under way."""
        self._end(float("inf"))

    def _draw(self) -> str:
        """Each fault once, in some order; then at random."""
        missing = [fault for fault in WEIGHTS if not self.counts[fault]]
        if missing:
            return self._random.choice(missing)
        return self._random.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]

    def _end(self, now: float) -> None:
        for one in [one for one in self._lasting if one.until <= now]:
            self._lasting.remove(one)
            with suppress(psycopg.Error):
                one.end()

    def _last(self, end: Callable[[], None], longest: float = 3.0) -> None:
        until = time.monotonic() + self._random.uniform(longest / 2, longest)
        self._lasting.append(Lasting(until, end))

    def _connect(self, autocommit: bool = True) -> Connection:
        return psycopg.connect(self._server.url, autocommit=autocommit, options=IMPATIENT)

    def _process_killed(self) -> None:
        self._processes.kill(self._random.choice(self._processes.begun))

    def _process_paused(self) -> None:
        """Stop an actor for longer than its leases last."""
        self._last(self._processes.pause(self._random.choice(self._processes.begun)))

    def _backend_ended(self) -> None:
        with self._connect() as connection:
            rows = connection.execute(
                "select pid from pg_stat_activity where datname = current_database()"
                " and backend_type = 'client backend' and pid <> pg_backend_pid() order by pid"
            ).fetchall()
            for (pid,) in self._random.sample(rows, min(len(rows), 3)):
                connection.execute("select pg_terminate_backend(%s)", (pid,))

    def _connections_used_up(self) -> None:
        taken: list[Connection] = []
        with suppress(psycopg.OperationalError):
            while len(taken) < MOST_CONNECTIONS:
                taken.append(self._connect())

        def end() -> None:
            for one in taken:
                one.close()

        self._last(end)

    def _transaction_left_open(self) -> None:
        """Write a transfer and leave the transaction open, so that readers have to wait."""
        name, key = str(uuid4()), str(uuid4())
        commits = self._random.random() < 0.7
        with ExitStack() as stack:
            connection = stack.enter_context(closing(self._connect(autocommit=False)))
            self._note(BEGUN, transaction=name, kept=[key], undone=[], silent=True)
            connection.execute(
                "select message_store.write_message(%s, %s, 'Moved',"
                " jsonb_build_object('key', %s::text))",
                (key, f"{TRANSFER}-{name}", key),
            )
            closed_later = stack.pop_all()

        def end() -> None:
            with closed_later:
                connection.commit() if commits else connection.rollback()
                self._note(COMMITTED if commits else ROLLED_BACK, transaction=name)

        self._last(end)

    def _server_restarted(self) -> None:
        self._server.restart()

    def _server_crashed(self) -> None:
        self._server.crash()

    def _note(self, fact: str, **details: object) -> None:
        with self._ledger.open("a") as file:
            file.write(json.dumps({"fact": fact, **details}) + "\n")
