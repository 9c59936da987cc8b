"""Notifications to other processes: which names are to be sent, when, and over which connection.

A name that is written all the time is sent less often than one that was not written lately, so that
a notification costs little where many messages are written, and is sent at once where few are.

The thread of the wake-ups owns the connection, but a writer that has committed sends on it itself:
it writes to a socket and does not wait for the reply. To pass the names to the thread would delay
them by the time that two threads take to change places. If the connection is in use, or the reply
to the last notification has not come, the thread sends them when that is over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from selectors import EVENT_READ, PollSelector
from typing import Any, LiteralString

import msgspec
import psycopg
from psycopg.pq import Escaping, ExecStatus

from penstock.database.operation import Operation, call
from penstock.database.waiters import EVERYTHING

CHANNEL = "penstock"
LONGEST_PAYLOAD = 7_900  # bytes; PostgreSQL refuses 8,000

# in seconds
#: between two notifications; between any two, and between two for the same name, of a store that
#: writes all the time
SHORTEST_GAP, LONGEST_GAP, LONGEST_GAP_OF_A_NAME = 0.005, 0.02, 0.1
#: between two writes, of a store that writes all the time
BUSY = 0.015
#: how many names have a gap of their own
MOST_GAPS = 1_000
#: how long another thread may use the connection
LONGEST_USE = 5.0

#: A notification gives its transaction an id, and so its commit would wait for the disk, with the
#: lock on the whole server. There is nothing to keep on disk.
NOTIFY: LiteralString = "select set_config('synchronous_commit', 'off', true), pg_notify(%s, %s)"
#: the same in two commands of one transaction, which the server need not plan
_NOTIFY_AT_ONCE = b"set local synchronous_commit = off; notify penstock, "


def notification(names: Iterable[str]) -> Operation[None]:
    """Notify of these names. Run it after the commit of what was written, never before."""
    return call("notify", NOTIFY, (CHANNEL, _payload(names)), lambda _: None)


def _payload(names: Iterable[str]) -> str:
    """Return the names as JSON; if that is too long for a notification, all waiters are woken."""
    text = msgspec.json.encode(sorted(names))
    return text.decode() if len(text) <= LONGEST_PAYLOAD else f'["{EVERYTHING}"]'


class Gap:
    """The time between two notifications: longer each time, until little is written."""

    __slots__ = ("_began", "_longest", "_seconds", "ends")

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._seconds = SHORTEST_GAP
        self._began = 0.0
        #: when the next one may be sent, by the monotonic clock
        self.ends = 0.0

    def begin(self, now: float, writes: int) -> None:
        """Note that a notification is sent now, for so many writes."""
        is_busy = now - self._began < writes * BUSY
        self._seconds = min(2 * self._seconds, self._longest) if is_busy else SHORTEST_GAP
        self._began, self.ends = now, now + self._seconds


class Pending:
    """The names to be sent. Any thread may call the methods."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._writes: dict[str, int] = {}  # by name, since it was sent
        self._gap, self._gaps = Gap(LONGEST_GAP), dict[str, Gap]()

    def __bool__(self) -> bool:
        return bool(self._writes)

    def add(self, names: Iterable[str]) -> bool:
        """Add names that were written, and return whether some of them are new."""
        with self._lock:
            writes = self._writes
            before = len(writes)
            for name in names:
                writes[name] = writes.get(name, 0) + 1
            return len(writes) > before

    def take_all(self) -> set[str]:
        """Take all names, to send them now or never."""
        with self._lock:
            names, self._writes = set(self._writes), {}
        return names

    def take_due(self) -> set[str]:
        """Take the names that may be sent now, and begin their gaps."""
        now = time.monotonic()
        with self._lock:
            if now < self._gap.ends:
                return set()
            gaps = self._gaps
            due = {one for one in self._writes if one not in gaps or now >= gaps[one].ends}
            if due:
                self._begin_gaps(now, {one: self._writes.pop(one) for one in due})
        return due

    def next_due(self) -> float | None:
        """Return when the next name may be sent, by the monotonic clock; None if there is none."""
        with self._lock:
            if not self._writes:
                return None
            gaps = self._gaps
            first = min(gaps[one].ends if one in gaps else 0.0 for one in self._writes)
            return max(first, self._gap.ends)

    def _begin_gaps(self, now: float, writes: dict[str, int]) -> None:
        if len(self._gaps) > MOST_GAPS:
            self._gaps = {name: gap for name, gap in self._gaps.items() if now < gap.ends}
        self._gap.begin(now, max(writes.values()))
        for name, count in writes.items():
            self._gaps.setdefault(name, Gap(LONGEST_GAP_OF_A_NAME)).begin(now, count)


class Line:
    """A connection that notifies and listens. One thread owns it, and any thread may send on it."""

    def __init__(self, connection: psycopg.Connection[Any], pending: Pending) -> None:
        self._connection = connection
        self._pgconn = connection.pgconn
        self._encoding = connection.info.encoding
        self._pending = pending
        self._in_use = threading.Lock()
        self._under_way: set[str] = set()  # the names whose notification was not answered yet

    @property
    def awaits_reply(self) -> bool:
        """Whether the reply to a notification has not come yet."""
        return bool(self._under_way)

    def send(self) -> bool:
        """Send the names that are due. Never waits. Return whether the thread need not be told."""
        if not self._in_use.acquire(blocking=False):
            return False
        try:
            with suppress(psycopg.Error):  # the thread will find the connection lost
                self._send_due()
                return not self._pending
            return False
        finally:
            self._in_use.release()

    # The rest is for the thread that owns the connection.

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other threads from using the connection."""
        if not self._in_use.acquire(timeout=LONGEST_USE):
            raise TimeoutError("a thread that was interrupted has kept the connection")
        try:
            yield
        finally:
            self._in_use.release()

    @contextmanager
    def free(self) -> Iterator[psycopg.Connection[Any] | None]:
        """Return the connection, to run statements on it; None as long as it awaits a reply."""
        with self.held():
            yield None if self._under_way else self._connection

    def receive(self) -> list[tuple[bytes, int]]:
        """Return the notifications that have arrived, each with its sender's process.

        The reply to the last notification is read first: what came behind it is no longer in the
        socket, which would not wake the thread for it. Raises if the connection is lost, or the
        last notification failed.
        """
        found = []
        with self.held():
            self._pgconn.consume_input()
            self._read_reply()
            while one := self._pgconn.notifies():
                found.append((one.extra, one.be_pid))
        return found

    def go_on(self) -> None:
        """Send the names that are due, if the last notification is answered."""
        with self.held():
            self._send_due()

    def finish(self, timeout: float) -> None:
        """Wait for the reply, for at most this time in seconds, and send all other names."""
        with PollSelector() as selector:
            selector.register(self._pgconn.socket, EVENT_READ)
            while self._under_way and selector.select(timeout):
                self.receive()
                self.go_on()
        with self.free() as connection:
            if connection is not None and self._pending:
                connection.execute(self._statement(self._pending.take_all()))

    def end(self) -> None:
        """Let no thread send any more. What was not answered is to be sent again."""
        self._in_use.acquire(timeout=LONGEST_USE)  # for ever
        self._pending.add(self._under_way)

    def _send_due(self) -> None:
        if self._under_way or not (names := self._pending.take_due()):
            return
        try:
            self._pgconn.send_query(self._statement(names))
        except psycopg.Error:
            self._pending.add(names)
            raise
        self._under_way = names

    def _read_reply(self) -> None:
        while self._under_way and not self._pgconn.is_busy():
            result = self._pgconn.get_result()
            if result is None:
                self._under_way = set()
            elif result.status == ExecStatus.FATAL_ERROR:
                raise psycopg.errors.error_from_result(result)

    def _statement(self, names: Iterable[str]) -> bytes:
        payload = _payload(names).encode(self._encoding)
        return _NOTIFY_AT_ONCE + Escaping(self._pgconn).escape_literal(payload)
