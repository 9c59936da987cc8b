"""What a call costs by the server's own counters, over many calls in one session.

PL/pgSQL plans each of the first five calls of a session for its arguments and may use one plan for
all arguments from the sixth call on. So a cost that is asserted for one call says nothing about the
sixth. Here each call is measured twenty times, in one session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import psycopg

from penstock import BorrowedConnection, Store

CALLS = 20

_READ = """
select coalesce(sum(pg_stat_get_xact_tuples_returned(c.oid)), 0)::bigint,
  coalesce(sum(pg_stat_get_xact_blocks_fetched(c.oid)), 0)::bigint
from pg_class c
where c.relnamespace = 'penstock'::regnamespace and c.relkind in ('r', 'i')
"""


class Cost(NamedTuple):
    """What the server has read: entries of indexes and rows of tables, and pages of both."""

    entries: int
    pages: int


class Session:
    """One connection, on which calls are measured."""

    def __init__(self, store: Store, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        self.connection = connection
        self.calls = store.using(connection)

    def cost(self, call: Callable[[BorrowedConnection], object]) -> Cost:
        """Make the call in the transaction that is open, and return what the server has read."""
        before = self._read()
        call(self.calls)
        after = self._read()
        return Cost(after.entries - before.entries, after.pages - before.pages)

    def costs(self, call: Callable[[BorrowedConnection], object]) -> list[Cost]:
        """Return the cost of each of twenty calls, each in a transaction of its own."""
        costs = []
        for _ in range(CALLS):
            costs.append(self.cost(call))
            self.connection.commit()
        return costs

    def _read(self) -> Cost:
        row = self.connection.execute(_READ).fetchone()
        assert row is not None
        return Cost(*(int(str(value)) for value in row))


@contextmanager
def session(store: Store) -> Iterator[Session]:
    """Return a session of its own for the length of the block."""
    with psycopg.connect(store.settings.conninfo()) as connection:
        yield Session(store, connection)


@contextmanager
def old_snapshot(store: Store) -> Iterator[None]:
    """Hold a snapshot open, so that nothing that was deleted since can be removed."""
    with psycopg.connect(store.settings.conninfo()) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("select count(*) from pg_class")
        yield
