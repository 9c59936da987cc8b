"""The stores of tests use connections again: a session's first calls cost more than most tests.

A new session reads the catalogs and compiles the functions that it calls, and `penstock.connect`
compares all of the schema. So the connections of a test's store are kept with its database. The
next test gets a new store, whose pool has these connections in the state of new ones: outside a
transaction, without locks, temporary tables, subscriptions and changed settings. A connection that
cannot be brought into this state is closed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Generic, TypeVar

import psycopg
from psycopg.pq import ExecStatus, TransactionStatus

from penstock.database.connection_setup import configuration
from penstock.store import Store
from penstock.store_async import AsyncStore

AnyStore = TypeVar("AnyStore", Store, AsyncStore)
Connection = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]

#: as `discard all`, except that plans and prepared statements are kept. What the session wrote is
#: counted now, for `FreshState.restore`
_RESET = (
    "close all; reset session authorization; reset all; unlisten *; discard temp;"
    " discard sequences; select pg_advisory_unlock_all(); select pg_stat_force_next_flush();"
)


class KeptConnections(Generic[AnyStore]):
    """The connections to one database between two tests."""

    def __init__(self, first: AnyStore, administrator: psycopg.Connection[Any]) -> None:
        """`first` is what `connect` returned for the database when that was fresh."""
        self._first: AnyStore = first
        setup = configuration(first.settings, first.edition)
        self._reset = (_RESET + psycopg.ClientCursor(administrator).mogrify(*setup)).encode()
        self._kept: list[Connection] = []

    @property
    def sessions(self) -> list[int]:
        """The process ids of the connections' sessions."""
        return [connection.pgconn.backend_pid for connection in self._kept]

    def new_store(self) -> AnyStore:
        """Return a store as `connect` does, with these connections in its pool."""
        first = self._first
        pool: Any = type(first._pool)(first.settings, first.edition)
        for connection in self._kept:
            pool.reserve()
            pool.opened(connection)
            pool.put(connection)
        self._kept = []
        context = replace(first.context, declared=set(), indexed=set())
        store: AnyStore = type(first)(pool, context, first._on_close)
        return store

    def take_back(self, store: AnyStore) -> None:
        """Close a store, except for the connections that can be used again."""
        if store.context.wake_ups is not None:
            store.context.wake_ups.close()
        self._kept = [one for one in _idle_connections(store) if self._is_reset(one)]
        store._pool.close()

    def close(self) -> None:
        """Close the connections."""
        for connection in self._kept:
            connection.pgconn.finish()
        self._kept = []

    def _is_reset(self, connection: Connection) -> bool:
        """Bring a connection into the state of a new one; close it if that fails."""
        if connection.pgconn.transaction_status == TransactionStatus.IDLE:
            result = connection.pgconn.exec_(self._reset)  # waits, even if the connection is async
            if result.status == ExecStatus.TUPLES_OK:
                return True
        connection.pgconn.finish()
        return False


def _idle_connections(store: Store | AsyncStore) -> Iterator[Connection]:
    """Take the idle connections out of a store's pool."""
    while not store.is_closed:
        slot: Any = store._pool.reserve()
        if not slot.done() or slot.result() is None:
            return
        yield slot.result()
