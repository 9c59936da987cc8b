"""The bookkeeping of a pool, without I/O: which connection the next caller gets.

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
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from penstock.errors import StoreClosed

Connection = TypeVar("Connection", psycopg.Connection[Any], psycopg.AsyncConnection[Any])

MAX_IDLE = 600.0  # seconds
MAX_LIFETIME = 3600.0


class Slots(Generic[Connection]):
    """The slots of one pool. Any thread or event loop may call the methods: none of them waits."""

    def __init__(self, min_size: int, max_size: int, where: str) -> None:
        self._min_size = min_size
        self._where = where
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._closed = False
        self._empty = max_size  # slots without a connection
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

    @property
    def lent(self) -> int:
        """The number of connections in use."""
        return len(self._opened) - len(self._idle)

    @property
    def is_closed(self) -> bool:
        """Whether the pool is closed."""
        return self._closed

    def take(self) -> Future[Connection | None]:
        """Return a slot to wait for. Its result is a connection, or None if the slot is empty."""
        self._check_process()
        slot: Future[Connection | None] = Future()
        with self._lock:
            if self._closed:
                raise StoreClosed(self._where)
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

    def opened(self, connection: Connection) -> None:
        """Register a connection that was opened in an empty slot."""
        with self._lock:
            if not self._closed:
                self._opened[id(connection)] = time.monotonic()
                return
        connection.pgconn.finish()
        raise StoreClosed(self._where)

    def put(self, connection: Connection | None) -> None:
        """Return a slot, with its connection or empty. Never waits."""
        slot = self._usable(connection) if connection is not None else None
        with self._lock:
            stale = self._put(slot)
        if stale is not None:
            stale.pgconn.finish()

    def drop_idle(self) -> None:
        """Close the idle connections, after another one was found broken."""
        with self._lock:
            idle = self._forget_idle()
        for one in idle:
            one.pgconn.finish()

    def close(self) -> None:
        """Close idle connections now, and others when returned. In a forked child, do nothing."""
        if os.getpid() != self._process:
            return
        with self._lock:
            self._closed = True
            idle = self._forget_idle()
            while self._waiting:
                waiting = self._waiting.popleft()
                if waiting.set_running_or_notify_cancel():
                    waiting.set_exception(StoreClosed(self._where))
        for one in idle:
            one.pgconn.finish()

    def _check_process(self) -> None:
        if os.getpid() != self._process:  # two processes would read each other's results
            raise StoreClosed(self._where)

    def _usable(self, connection: Connection) -> Connection | None:
        """Return the connection if it can be used again, else close it."""
        since = self._opened.get(id(connection), 0.0)
        is_idle = connection.pgconn.transaction_status == TransactionStatus.IDLE
        if is_idle and time.monotonic() - since < MAX_LIFETIME:
            return connection
        self._opened.pop(id(connection), None)
        connection.pgconn.finish()
        return None

    def _put(self, slot: Connection | None) -> Connection | None:
        """Assign a slot to a waiting caller, or keep it. Return a connection to close, if any."""
        if self._closed:
            return slot
        while self._waiting:
            waiting = self._waiting.popleft()
            if waiting.set_running_or_notify_cancel():  # false if the caller stopped waiting
                waiting.set_result(slot)
                return None
        if slot is None:
            self._empty += 1
        else:
            self._idle.append((time.monotonic(), slot))
        return self._unused()

    def _unused(self) -> Connection | None:
        """Remove one connection that was idle for too long, if there are more than `min_size`."""
        if self._idle and len(self._opened) > self._min_size:
            since, connection = self._idle[0]
            if time.monotonic() - since > MAX_IDLE:
                self._idle.popleft()
                self._opened.pop(id(connection), None)
                self._empty += 1
                return connection
        return None

    def _forget_idle(self) -> list[Connection]:
        idle = [connection for _, connection in self._idle]
        self._idle.clear()
        self._empty += len(idle)
        for one in idle:
            self._opened.pop(id(one), None)
        return idle
