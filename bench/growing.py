"""A log of some size, and what the server's processor spends on one operation there.

Every message of the log carries one and the same account id, which is indexed: the hottest boundary
there can be. Each operation runs on one connection of its own, and counted is the time that the
server's processor is busy with it.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import psycopg

import penstock
from bench.server import DATA, METADATA, Server, busy_seconds, fill
from penstock import Claim, Guard, TypedMessage

SLICE = 50  # operations: so few that a small log stays small
PAGE = 100

_WRITE = """
select message_store.write_message(
  uuidv7()::varchar, 'account-' || %s::int, 'Noted', %s, %s, null)
"""


class Deposited(TypedMessage, type="Deposited"):
    """What the log is filled with."""

    account_id: str


class MeterRead(TypedMessage, type="meter.read"):
    """A message of a partition for each device."""

    device: str


class Log:
    """A log of so many messages, and a connection to it."""

    def __init__(self, server: Server, messages: int, claims: int) -> None:
        self.messages = messages
        self.name = f"log_{messages}"
        url = server.ours(self.name, 0)
        self._store = penstock.connect(url)
        self._store.declare(Deposited)
        fill(url, "message_store.messages", messages)
        self._connection = psycopg.connect(url, autocommit=True)
        self._connection.execute("set synchronous_commit = off")
        self._here = self._store.using(self._connection)
        self._route(claims)

    def close(self) -> None:
        """Leave the database."""
        self._connection.close()
        self._store.close()

    def write(self) -> float:
        """Write to a random stream that exists already."""
        streams = self.messages // 10
        return self._microseconds(
            lambda: self._connection.execute(
                _WRITE, (random.randrange(streams), DATA, METADATA), prepare=True
            )
        )

    def append(self) -> float:
        """Append under a guard on the boundary that all messages of the log are in."""
        hot = {"account_id": "a1b2c3d4"}
        guard = Guard(tuple(Deposited.to_conditions(**hot)), self._store.category_head("$all"))

        def append() -> None:
            nonlocal guard
            appended = self._here.append(Deposited(**hot), guard)
            assert appended.guard is not None
            guard = appended.guard

        return self._microseconds(append)

    def claim_and_ack(self) -> float:
        """Claim a partition with one message, and acknowledge it."""
        return self._microseconds(lambda: self._here.groups.ack(self._claim()))

    def read(self) -> float:
        """Read a page of the category from a random position on."""
        latest = self.messages - PAGE
        return self._microseconds(
            lambda: self._here.get_category_messages("account", random.randint(1, latest), PAGE)
        )

    def _microseconds(self, operation: Callable[[], object]) -> float:
        began = busy_seconds(self._connection)
        for _ in range(SLICE):
            operation()
        return (busy_seconds(self._connection) - began) / SLICE * 1_000_000

    def _route(self, claims: int) -> None:
        """Add messages for so many claims, and route all of them to their partitions."""
        self._here.groups.register("bench")
        self._here.append([MeterRead(device=str(number)) for number in range(claims)])
        claim = self._claim()
        self._here.groups.release(claim)
        route = "select penstock.route(g) from penstock.consumer_groups g"
        while self._connection.execute(route).fetchone() == (True,):
            pass
        self._connection.execute("vacuum analyze")

    def _claim(self) -> Claim:
        claim = self._here.groups.claim_next(
            "bench", partition_by="device", handled_types=[MeterRead]
        )
        assert claim is not None
        return claim
