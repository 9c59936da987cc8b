"""The base of both pools, without I/O: which connection the next caller gets.

A pool has `max_size` slots. A slot holds a connection or is empty. A caller that takes an empty
slot opens a connection, in its own thread or task. So a pool has no threads or tasks that must be
stopped before a program can end, and the caller that needs a connection gets its error.

The most recently used connection is lent first. A returned connection goes to the caller that has
waited longest. It is closed if it is older than an hour, which limits the memory that the server
uses for a session, or if it is inside a transaction, which the server then rolls back. When a
connection is returned, one that was idle for ten minutes is closed if there are more than
`min_size`.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from penstock.database.edition import Edition
from penstock.database.interceptor import Interceptor
from penstock.database.wake_ups import WakeUps
from penstock.errors import DatabaseUnreachable, PoolExhausted, StoreClosed, UnavailableError
from penstock.settings import Settings

Connection = TypeVar("Connection", psycopg.Connection[Any], psycopg.AsyncConnection[Any])

MAX_IDLE = 600.0  # seconds
MAX_LIFETIME = 3600.0


class BasePool(Generic[Connection]):
    """A pool without I/O. Any thread or event loop may call the methods: none of them waits."""

    def __init__(
        self, settings: Settings, edition: Edition, interceptors: Sequence[Interceptor] = ()
    ) -> None:
        self.settings = settings
        self.edition = edition
        self.interceptors = interceptors
        self.where = settings.where()
        self.is_closed = False
        self.wake_ups = WakeUps(settings, edition) if settings.wake_up else None
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._empty = settings.pool_max_size  # slots without a connection
        self._idle: deque[tuple[float, Connection]] = deque()  # idle since; the last used is last
        self._waiting: deque[Future[Connection | None]] = deque()
        #: when each was opened, by id(), so that an abandoned connection is closed with its object
        self._opened: dict[int, float] = {}

    def __reduce__(self) -> str:
        """Raise TypeError: a pool, and so a store or a transaction, cannot be pickled or copied."""
        raise TypeError(
            "a store has open connections, which cannot be pickled or copied: pass "
            "`store.settings` instead, and call penstock.connect(settings) there"
        )

    def take_idle(self) -> Connection | None:
        """Return an idle connection, or None. This is the usual case, so it is cheap."""
        if os.getpid() != self._process:
            return None
        with self._lock:
            return self._idle.pop()[1] if self._idle else None

    def reserve(self) -> Future[Connection | None]:
        """Return a slot to wait for. Its result is a connection, or None if the slot is empty."""
        if os.getpid() != self._process:  # two processes would read each other's results
            raise StoreClosed(self.where)
        slot: Future[Connection | None] = Future()
        with self._lock:
            if self.is_closed:
                raise StoreClosed(self.where)
            if self._idle:
                slot.set_result(self._idle.pop()[1])
            elif self._empty:
                self._empty -= 1
                slot.set_result(None)
            else:
                self._waiting.append(slot)
        return slot

    def stop_waiting(self, slot: Future[Connection | None]) -> None:
        """Stop waiting for a slot, and put it back if it was assigned in the meantime."""
        if not slot.cancel() and slot.exception() is None:
            self.put(slot.result())

    def no_connection_error(self) -> UnavailableError:
        """Return the error for a caller that got no connection in time."""
        waited = f"{self.settings.pool_timeout_ms / 1000:g} s"
        if len(self._opened) - len(self._idle) < self.settings.pool_max_size:
            reason = f"the server did not accept a new connection within {waited}"
            return DatabaseUnreachable(self.where, reason)
        return PoolExhausted(
            self.where,
            f"all {self.settings.pool_max_size} connections stayed in use for {waited}: "
            "end transactions sooner, or raise pool_max_size",
        )

    def opened(self, connection: Connection) -> None:
        """Register a connection that was opened in an empty slot."""
        with self._lock:
            if not self.is_closed:
                self._opened[id(connection)] = time.monotonic()
                return
        connection.pgconn.finish()
        raise StoreClosed(self.where)

    def put(self, connection: Connection | None) -> None:
        """Return a slot, with its connection or empty. Never waits."""
        if connection is not None:
            age = time.monotonic() - self._opened.get(id(connection), 0.0)
            is_idle = connection.pgconn.transaction_status == TransactionStatus.IDLE
            if age >= MAX_LIFETIME or not is_idle:
                self._opened.pop(id(connection), None)
                connection.pgconn.finish()
                connection = None
        with self._lock:
            stale = self._put(connection)
        for one in stale:
            one.pgconn.finish()

    def drop_idle(self) -> None:
        """Close the idle connections."""
        with self._lock:
            idle = self._forget_idle(len(self._idle))
        for one in idle:
            one.pgconn.finish()

    def close(self) -> None:
        """Close idle connections now, and others when returned. In a forked child, do nothing."""
        if os.getpid() != self._process:
            return
        with self._lock:
            self.is_closed = True
            for waiting in self._callers():
                waiting.set_exception(StoreClosed(self.where))
        if self.wake_ups is not None:
            self.wake_ups.close(timeout=0)
        self.drop_idle()

    def notify(self, names: frozenset[str]) -> None:
        """Wake what waits for one of these names, after the commit of what was written."""
        if names and self.wake_ups is not None:
            self.wake_ups.notify(names)

    def _put(self, slot: Connection | None) -> list[Connection]:
        """Assign a slot to a waiting caller, or keep it. Return the connections to close."""
        if self.is_closed:
            return [] if slot is None else [slot]
        if waiting := next(self._callers(), None):
            waiting.set_result(slot)
            return []
        now = time.monotonic()
        if slot is None:
            self._empty += 1
        else:
            self._idle.append((now, slot))
        has_unused = len(self._opened) > self.settings.pool_min_size and self._idle
        return self._forget_idle(1 if has_unused and now - self._idle[0][0] > MAX_IDLE else 0)

    def _callers(self) -> Iterator[Future[Connection | None]]:
        while self._waiting:
            waiting = self._waiting.popleft()
            if waiting.set_running_or_notify_cancel():  # false if the caller stopped waiting
                yield waiting

    def _forget_idle(self, count: int) -> list[Connection]:
        """Empty the slots of the connections that were idle longest. The caller closes them."""
        forgotten = [self._idle.popleft()[1] for _ in range(count)]
        for one in forgotten:
            self._opened.pop(id(one), None)
        self._empty += count
        return forgotten
