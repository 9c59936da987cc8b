"""The stores of tests use connections again: a session's first calls cost more than most tests.

A new session reads the catalogs and compiles the functions that it calls, and `penstock.connect`
compares all of the schema. So the connections of a test's store are kept with its database, also
the one of its wake-ups. The next test gets a new store, whose pool has these connections in the
state of new ones: outside a transaction, without locks, temporary tables, subscriptions and changed
settings. A connection that cannot be brought into this state is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Generic, TypeVar

import psycopg
from psycopg.pq import ExecStatus, TransactionStatus

from penstock.database.connection_setup import configuration
from penstock.database.edition import Edition
from penstock.database.wake_ups import WakeUps
from penstock.log.state_cache import StateCache
from penstock.settings import Settings
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


class Listener(psycopg.Connection[Any]):
    """The connection of a store's wake-ups. Their thread leaves it open if it is kept."""

    is_kept = False

    def close(self) -> None:
        """Close it, unless it is kept."""
        if not self.is_kept:
            super().close()


class KeptWakeUps(WakeUps):
    """Wake-ups whose connection is used again."""

    def __init__(self, settings: Settings, edition: Edition, kept: Listener | None) -> None:
        super().__init__(settings, edition)
        self._kept = kept
        self._listener: Listener | None = None

    def take_listener(self) -> Listener | None:
        """End the wake-ups, and return their connection unless that is lost or in use."""
        if self._listener is not None:
            self._listener.is_kept = True
        self.close()
        if self._listener is not None and self._thread is not None and self._thread.is_alive():
            self._listener.is_kept = False
            return None
        return self._listener or self._kept

    def _connected(self) -> psycopg.Connection[Any]:
        self._listener = None
        return super()._connected()

    def _connect(self) -> psycopg.Connection[Any]:
        if self._listener is not None:
            return super()._connect()  # for the notification to oneself
        kept, self._kept = self._kept, None
        self._listener = kept or Listener.connect(
            self._settings.conninfo(), autocommit=True, prepare_threshold=None
        )
        return self._listener


class KeptConnections(Generic[AnyStore]):
    """The connections to one database between two tests."""

    def __init__(self, like: AnyStore, url: str, administrator: psycopg.Connection[Any]) -> None:
        """`like` is what `connect` returned for a fresh database of the same edition."""
        self._settings = replace(like.settings, database_url=url)
        self._like: AnyStore = like
        setup = configuration(like.settings, like.edition)
        self._setup = psycopg.ClientCursor(administrator).mogrify(*setup)
        self._kept: list[Connection] = []
        self._listener: Listener | None = None

    @property
    def sessions(self) -> list[int]:
        """The process ids of the connections' sessions."""
        kept = (*self._kept, self._listener)
        return [one.pgconn.backend_pid for one in kept if one is not None]

    def new_store(self) -> AnyStore:
        """Return a store as `connect` does, with these connections in its pool."""
        like, settings = self._like, self._settings
        pool: Any = type(like._pool)(settings, like.edition)
        pool.wake_ups = KeptWakeUps(settings, like.edition, self._listener)
        for connection in self._kept:
            pool.reserve()
            pool.opened(connection)
            pool.put(connection)
        self._kept = []
        self._listener = None
        context = replace(
            like.context,
            settings=settings,
            declared=set(),
            indexed=set(),
            states=StateCache(settings.decider_cache_size),
        )
        store: AnyStore = type(like)(pool, context, like._on_close)
        return store

    def take_back(self, store: AnyStore) -> None:
        """Close a store, except for the connections that can be used again."""
        if isinstance(store.context.wake_ups, KeptWakeUps):
            listener = store.context.wake_ups.take_listener()
            if listener is not None and _is_reset(listener):
                listener.is_kept = False
                self._listener = listener
        elif store.context.wake_ups is not None:
            store.context.wake_ups.close()
        self._kept = [one for one in _idle_connections(store) if _is_reset(one, self._setup)]
        store._pool.close()

    def close(self) -> None:
        """Close the connections."""
        for connection in self._kept:
            connection.pgconn.finish()
        if self._listener is not None:
            self._listener.pgconn.finish()
        self._kept = []
        self._listener = None


def _is_reset(connection: Connection, setup: str = "") -> bool:
    """Bring a connection into the state of a new one, with this setup; close it if that fails."""
    pgconn = connection.pgconn
    if pgconn.transaction_status == TransactionStatus.IDLE:
        result = pgconn.exec_((_RESET + setup).encode())  # waits, even if the connection is async
        if result.status == ExecStatus.TUPLES_OK:
            while pgconn.notifies():
                pass
            connection._notify_handlers.clear()
            if isinstance(connection, psycopg.AsyncConnection):
                connection.lock = asyncio.Lock()  # the next test has another event loop
            return True
    pgconn.finish()
    return False


def _idle_connections(store: Store | AsyncStore) -> Iterator[Connection]:
    """Take the idle connections out of a store's pool."""
    while not store.is_closed:
        slot: Any = store._pool.reserve()
        if not slot.done() or slot.result() is None:
            return
        yield slot.result()
