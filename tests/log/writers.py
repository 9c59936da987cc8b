"""Writers for the stress test: transactions of any length, some undone in part or as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any
from uuid import UUID

import psycopg

import penstock

Connection = psycopg.Connection[Any]
#: writes messages with these ids, in this order, to a stream of about this name
Write = Callable[[Connection, str, Sequence[UUID]], None]

CATEGORIES = ("order", "order", "invoice", "shipment", "payment", "stock")


class Writer:
    """Writes one transaction after the other, and records the results."""

    def __init__(self, url: str, number: int, seed: int, ways: Sequence[Write]) -> None:
        self.url = url
        self.number = number
        self.random = Random(f"{seed} writer {number}")
        self.ways = ways
        #: ids whose commit was confirmed
        self.promised: set[UUID] = set()
        #: ids whose commit was asked for: if its connection is lost just then, nobody can tell
        self.possible: set[UUID] = set()
        #: how often its connection was lost
        self.losses = 0

    def run(self, stop: Callable[[], bool], after_each: Callable[[], None]) -> None:
        """Write until it is stopped, on a new connection whenever the old one is lost."""
        while not stop():
            try:
                with self._connected() as connection:
                    while not stop():
                        self._transaction(connection)
                        after_each()
            except psycopg.OperationalError:
                self.losses += 1

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("set search_path = message_store, public")  # for the genuine ones
            yield connection

    def _transaction(self, connection: Connection) -> None:
        undone = self.random.random() < 0.15
        try:
            with connection.transaction(force_rollback=undone):
                ids = self._steps(connection, self.random.choice(CATEGORIES))
                self.possible |= set() if undone else ids
            if not (undone or connection.broken):  # psycopg says nothing if it broke just before
                self.promised |= ids
        except psycopg.errors.DeadlockDetected:
            pass  # undone by the server

    def _steps(self, connection: Connection, category: str) -> set[UUID]:
        kept: set[UUID] = set()
        for _ in range(self._length()):
            undone = self.random.random() < 0.1
            if undone or self.random.random() < 0.1:
                with connection.transaction(force_rollback=undone):  # a savepoint
                    ids = self._write(connection, category)
            else:
                ids = self._write(connection, category)
            kept.update([] if undone else ids)
        return kept

    def _length(self) -> int:
        kind = self.random.random()
        if kind < 0.5:
            return 1
        return self.random.randint(2, 12) if kind < 0.95 else self.random.randint(20, 200)

    def _write(self, connection: Connection, category: str) -> list[UUID]:
        way = self.random.choice(self.ways)
        ids = [penstock.new_id() for _ in range(self.random.choice([1, 1, 1, 2, 10]))]
        way(connection, f"{category}-{self.number}x{self.random.randint(1, 5)}", ids)
        return ids


def by_function(connection: Connection, stream_name: str, ids: Sequence[UUID]) -> None:
    """Call Message DB's function: ours or the genuine one, whichever the database has."""
    connection.execute(
        "select message_store.write_message(id::varchar, %s, 'Written', '{}')"
        " from unnest(%s::uuid[]) as new(id)",
        (stream_name, list(ids)),
    )


def by_batch(connection: Connection, stream_name: str, ids: Sequence[UUID]) -> None:
    """Call our function for several messages at once."""
    connection.execute(
        "select penstock.write_messages("
        "%s, %s::uuid[], %s::text[], %s::text[], array_fill(null::text, array[%s]))",
        (stream_name, list(ids), ["Written"] * len(ids), ["{}"] * len(ids), len(ids)),
    )


def by_insert(connection: Connection, stream_name: str, ids: Sequence[UUID]) -> None:
    """Insert rows, past all functions, as a stream of their own."""
    connection.execute(
        "insert into message_store.messages (id, stream_name, type, position)"
        " select id, %s, 'Written', n from unnest(%s::uuid[]) with ordinality as new(id, n)",
        (f"{stream_name}i{ids[0]}", list(ids)),
    )


def by_copy(connection: Connection, stream_name: str, ids: Sequence[UUID]) -> None:
    """Copy rows in, past all functions, as a stream of their own."""
    into = "copy message_store.messages (id, stream_name, type, position) from stdin"
    with connection.cursor() as cursor, cursor.copy(into) as copy:
        for position, one in enumerate(ids):
            copy.write_row((one, f"{stream_name}c{ids[0]}", "Written", position))


EVERY_WAY: tuple[Write, ...] = (by_function, by_function, by_batch, by_insert, by_copy)
