"""What every actor has: a name, a store, a ledger, a seed, and patience with a database in trouble.

An actor goes on until SIGTERM. The result of a call is a fact; without a result, because
the connection was lost or the actor was killed, the outcome is unknown, and it records nothing.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import penstock
from penstock import Store, UnavailableError
from penstock.errors import TransactionConflict

Result = TypeVar("Result")

LEASE = 1.0  # seconds, of claims: faults pause processes for longer
ENDLESS = 10**6  # attempts: nothing is given up because of a fault


class Stopped(Exception):
    """The actor was to stop while the database was away."""


class Actor:
    """One process of a run."""

    def __init__(self, name: str, url: str, ledger: str, seed: int) -> None:
        self.name = name
        self.url = url
        self.random = Random(f"{seed} {Path(ledger).name}")
        self._stopping = False
        self._path = ledger
        self._ledger = -1
        signal.signal(signal.SIGTERM, lambda *_: self.stop())

    @property
    def variant(self) -> str:
        """What comes after the hyphen in its name."""
        return self.name.partition("-")[2]

    def note(self, fact: str, **details: Any) -> None:
        """Write a fact down. A line that a kill has cut short is no fact."""
        os.write(self._ledger, (json.dumps({"fact": fact, **details}) + "\n").encode())

    def goes_on(self, longest_pause: float = 0.0) -> bool:
        """Rest a little, so that there is time for everybody; return whether to do more."""
        time.sleep(self.random.uniform(0, longest_pause))
        return not self._stopping

    def store(self) -> Store:
        """Connect, as soon as there is a server to connect to, and open the ledger."""
        store = self.patiently(
            lambda: penstock.connect(
                self.url, pool_max_size=4, pool_timeout_ms=5_000, command_timeout_ms=10_000
            )
        )
        self._ledger = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        return store

    def patiently(self, call: Callable[[], Result]) -> Result:
        """Do it, again and again while the database is in trouble."""
        while True:
            try:
                return call()
            except (UnavailableError, TransactionConflict):
                if self._stopping:
                    raise Stopped from None
            time.sleep(self.random.uniform(0.02, 0.1))

    def stop(self) -> None:
        """Do no more."""
        self._stopping = True


def play(part: Callable[[Actor], None]) -> Callable[[str, str, str, int], None]:
    """Return the main function of an actor with this part, who plays it until SIGTERM."""

    def main(name: str, url: str, ledger: str, seed: int) -> None:
        with suppress(Stopped):
            part(Actor(name, url, ledger, seed))

    return main
