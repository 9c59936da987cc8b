"""Wake-ups: what waits for something new sleeps until it is there, and writers do not wait for it.

`NOTIFY` inside a writing transaction takes a lock on the whole server until that commit is on disk,
so writers would commit one after the other. It is never sent there. After its commit a store
*rings*: it wakes the waiters of its own process directly, and one background thread sends
`pg_notify` to the other processes, in a transaction of its own and at most once in some
milliseconds. A name that is rung for all the time is sent less often than one that was not rung for
lately, so that a notification costs little where many messages are written, and is sent at once
where few are. The same thread, on the same connection, listens for all waiters of the store.

The promise: no waiter sleeps past its safety look. A ring may be lost, and a writer need not ring:
plain SQL, another client, a process that was killed between its commit and its ring. That costs a
delay, never a message. How it is kept:

* A waiter registers, looks, and then sleeps. A ring after the registration ends the sleep, also if
  it comes between the look and the sleep.
* The thread looks for all waiters together, about once a second. It reads the server's snapshot and
  the watermark. Every commit changes the snapshot, and every message that becomes readable changes
  the watermark: if they are as they were at the look before, there is nothing to look for. If the
  watermark has moved, it reads which names were written, and wakes those that wait for them: the
  cost of a look does not grow with the waiters that have nothing to do. Those that wait for
  something else than messages are woken by every commit. Some looks after a change all waiters are
  woken, for what this does not show, such as a partition that was released. If a waiter then finds
  something that nobody rang for, the next looks are more frequent.
* A waiter that the thread has not looked for in time looks itself. Waiters poll until notifications
  are known to arrive, and after the connection was lost. When notifications arrive again, all
  waiters look once.

Behind a transaction pooler LISTEN has no effect. So the thread sends itself a notification through
a second connection, and waiters rely on wake-ups only when it has arrived.
"""

from __future__ import annotations

import logging
import os
import selectors
import threading
import time
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, LiteralString
from uuid import uuid4

import msgspec
import psycopg

from penstock.database.edition import Edition
from penstock.database.operation import Operation, call
from penstock.database.waiters import EVERYTHING, Waiters
from penstock.errors import first_line
from penstock.settings import Settings, redact

logger = logging.getLogger("penstock")

CHANNEL = "penstock"
LONGEST_PAYLOAD = 7_900  # bytes; PostgreSQL refuses 8,000

# in seconds
#: between two notifications; between any two, and between two for the same name, of a store that
#: writes all the time
SHORTEST_GAP, LONGEST_GAP, LONGEST_GAP_OF_A_NAME = 0.005, 0.02, 0.1
#: how many looks after a change pass until all waiters are woken
MOST_PARTIAL_LOOKS = 4
#: how many names have a gap of their own
MOST_GAPS = 1_000
#: between two attempts to connect
SHORTEST_RETRY, LONGEST_RETRY = 0.1, 5.0

_LOOK: LiteralString = "select pg_current_snapshot()::text, penstock.watermark()"
_WRITTEN: LiteralString = "select penstock.names_written(%s, %s)"
_LOOK_AT_MESSAGE_DB: LiteralString = "select pg_current_snapshot()::text, 0::bigint"
#: A notification gives its transaction an id, and so its commit would wait for the disk, with the
#: lock on the whole server. There is nothing to keep on disk.
_NOTIFY: LiteralString = "select set_config('synchronous_commit', 'off', true), pg_notify(%s, %s)"


@dataclass(frozen=True)
class Pace:
    """How often a store looks for its waiters, in seconds."""

    #: between two safety looks while nothing happens
    look: float = 1.1
    #: after which a waiter looks itself, if the thread has not
    patience: float = 1.5
    #: within which a notification to oneself arrives, unless there is a pooler
    probe: float = 1.0


class Gap:
    """The time between two notifications: longer each time, until there is a rest."""

    __slots__ = ("_longest", "_seconds", "ends")

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._seconds = SHORTEST_GAP
        #: when the next one may be sent, by the monotonic clock
        self.ends = 0.0

    def begin(self, now: float) -> None:
        """Note that a notification was sent now."""
        is_busy = now < self.ends + 2 * SHORTEST_GAP
        self._seconds = min(2 * self._seconds, self._longest) if is_busy else SHORTEST_GAP
        self.ends = now + self._seconds


def ring_operation(rung: Iterable[str]) -> Operation[None]:
    """Ring for these names. Run it after the commit of what was written, never before."""
    return call("ring", _NOTIFY, (CHANNEL, _payload(rung)), lambda _: None)


def _payload(rung: Iterable[str]) -> str:
    """Return the names as JSON; if that is too long for a notification, all waiters are woken."""
    text = msgspec.json.encode(sorted(rung))
    return text.decode() if len(text) <= LONGEST_PAYLOAD else f'["{EVERYTHING}"]'


def notifications_arrive(
    connection: psycopg.Connection[Any], other: psycopg.Connection[Any], timeout: float
) -> bool:
    """Return whether a notification that one connection sends arrives on the other."""
    token = str(uuid4())
    connection.execute("listen penstock")
    other.execute(_NOTIFY, (CHANNEL, f'["{token}"]'))
    deadline = time.monotonic() + timeout
    while (left := deadline - time.monotonic()) > 0:
        if any(token in one.payload for one in connection.notifies(timeout=left, stop_after=1)):
            return True
    return False


class WakeUps:
    """The wake-ups of one store: who waits in this process, and the thread that rings and listens.

    The thread starts with the first ring, or with the first waiter that sleeps.
    """

    def __init__(self, settings: Settings, edition: Edition, pace: Pace | None = None) -> None:
        self.pace = pace or Pace()
        self.waiters = Waiters()
        #: whether notifications are known to arrive
        self.is_listening = False
        self._settings = settings
        self._look_sql = _LOOK if edition.has_watermark else _LOOK_AT_MESSAGE_DB
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._pipe = (-1, -1)  # what is written to the second wakes the thread
        self._is_closed = False
        self._wants_to_listen = False
        self._pending: set[str] = set()  # names to be sent
        self._gap, self._gaps = Gap(LONGEST_GAP), dict[str, Gap]()
        self._pid = 0  # of the connection's server process
        self._token = ""  # of the notification to oneself
        self._probe_ends, self._arrives = 0.0, False
        self._seen: tuple[Any, ...] | None = None
        self._partial_looks = 0  # since all waiters were woken
        self._looked_at = 0.0
        self._look_pause, self._next_look = self.pace.look, 0.0

    def ring(self, rung: Iterable[str]) -> None:
        """Wake those that wait for one of these names, here and in other processes. Never waits."""
        if self._is_closed or os.getpid() != self._process:
            return
        self.waiters.ring(rung)
        with self._lock:
            if not self._pending.issuperset(rung):
                self._pending.update(rung)
                self._tell_thread()

    def listen(self) -> None:
        """Listen from now on: a waiter is going to sleep. Never waits."""
        if not self._wants_to_listen and os.getpid() == self._process:
            with self._lock:
                self._wants_to_listen = True
                self._tell_thread()

    def look_again(self, pause: float) -> None:
        """Look again after this pause: the last look has found what nobody rang for."""
        with self._lock:
            self._look_pause = min(max(pause, SHORTEST_GAP), self.pace.look)
            self._next_look = min(self._next_look, time.monotonic() + self._look_pause)
            self._tell_thread()

    def has_looked_since(self, moment: float) -> bool:
        """Whether the thread has looked for all waiters since then, by the monotonic clock."""
        return self.is_listening and self._looked_at >= moment

    def close(self, timeout: float = 1.0) -> frozenset[str]:
        """Stop listening and wake all waiters. Return what was rung for and is not sent."""
        if os.getpid() != self._process:
            return frozenset()
        with self._lock:
            self._is_closed = True
            if self._thread is not None:
                self._tell_thread()
        self.is_listening = False
        self.waiters.ring([EVERYTHING])
        if self._thread is not None:
            with suppress(RuntimeError):  # a signal's exception may have interrupted its start
                self._thread.join(timeout)
        with self._lock:
            left, self._pending = frozenset(self._pending), set()
        return left

    def _tell_thread(self) -> None:
        """Wake the thread, or start it. The caller holds the lock."""
        if self._thread is None and not self._is_closed:
            self._pipe = os.pipe()
            os.set_blocking(self._pipe[1], False)
            self._thread = threading.Thread(target=self._run, name="penstock wake-ups", daemon=True)
            self._thread.start()
        elif self._pipe[1] >= 0:
            with suppress(BlockingIOError):  # it has been told often enough
                os.write(self._pipe[1], b".")

    # The thread

    def _run(self) -> None:
        pause = SHORTEST_RETRY
        while not self._is_closed:
            try:
                with closing(self._connected()) as connection:
                    pause = SHORTEST_RETRY
                    self._serve(connection)
            except Exception as error:  # whatever it is: the thread has to try again
                self._lost(error)
                with self._selector() as selector:
                    self._wait(selector, pause)
                pause = min(2 * pause, LONGEST_RETRY)
        with self._lock:
            pipe, self._pipe = self._pipe, (-1, -1)
        for end in pipe:
            os.close(end)

    def _connected(self) -> psycopg.Connection[Any]:
        connection = self._connect()
        name = f"{self._settings.application_name} wake-ups"
        connection.execute("select set_config('application_name', %s, false)", (name[:63],))
        connection.add_notify_handler(self._notified)
        self._pid = connection.info.backend_pid
        return connection

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self._settings.conninfo(), autocommit=True, prepare_threshold=None)

    def _serve(self, connection: psycopg.Connection[Any]) -> None:
        """Send, listen and look, until the store is closed or the connection is lost."""
        listens, cursor = False, psycopg.ClientCursor(connection)
        with self._selector() as selector:
            selector.register(connection.fileno(), selectors.EVENT_READ)
            while not self._is_closed:
                if self._wants_to_listen and not listens:
                    self._listen(connection)
                    listens = True
                self._send(cursor, self._take_due())
                self._look(connection)
                self._wait(selector, self._seconds_left())
                self._receive(connection)
        with self._lock:
            left, self._pending = self._pending, set()
        self._send(cursor, left)

    def _selector(self) -> selectors.BaseSelector:
        selector = selectors.PollSelector()
        selector.register(self._pipe[0], selectors.EVENT_READ)
        return selector

    def _wait(self, selector: selectors.BaseSelector, timeout: float | None) -> None:
        """Wait until the thread is told something, the selector has something, or the timeout."""
        told = self._pipe[0]
        if any(key.fd == told for key, _ in selector.select(timeout)):
            os.read(told, 1024)

    def _seconds_left(self) -> float | None:
        """Return how long the thread may wait; None: until it is told something."""
        moments = []
        with self._lock:
            if self._pending:
                first = min(
                    self._gaps[one].ends if one in self._gaps else 0.0 for one in self._pending
                )
                moments.append(max(first, self._gap.ends))
        if self.is_listening:
            moments.append(self._next_look)
        elif self._probe_ends:
            moments.append(self._probe_ends)
        return max(0.0, min(moments) - time.monotonic()) if moments else None

    def _take_due(self) -> set[str]:
        """Take the names that may be sent now."""
        now, gaps = time.monotonic(), self._gaps
        with self._lock:
            if now < self._gap.ends:
                return set()
            due = {one for one in self._pending if one not in gaps or now >= gaps[one].ends}
            self._pending -= due
        return due

    def _send(self, cursor: psycopg.ClientCursor[Any], rung: set[str]) -> None:
        """Send names to the other processes, and begin their gaps."""
        if not rung:
            return
        try:
            cursor.execute(_NOTIFY, (CHANNEL, _payload(rung)))  # bound here: no plan is made
        except psycopg.Error:
            with self._lock:
                self._pending |= rung
            raise
        now = time.monotonic()
        if len(self._gaps) > MOST_GAPS:
            self._gaps = {name: gap for name, gap in self._gaps.items() if now < gap.ends}
        self._gap.begin(now)
        for name in rung:
            self._gaps.setdefault(name, Gap(LONGEST_GAP_OF_A_NAME)).begin(now)

    def _listen(self, connection: psycopg.Connection[Any]) -> None:
        """Listen, and find out whether notifications arrive: see `_notified`."""
        self._token = str(uuid4())
        connection.execute("listen penstock")
        with closing(self._connect()) as other:
            other.execute(_NOTIFY, (CHANNEL, f'["{self._token}"]'))
        self._probe_ends = time.monotonic() + self.pace.probe

    def _receive(self, connection: psycopg.Connection[Any]) -> None:
        """Handle the notifications that have arrived, or raise if the connection is lost."""
        connection.pgconn.consume_input()
        while one := connection.pgconn.notifies():
            self._notified(psycopg.Notify(CHANNEL, one.extra.decode(), one.be_pid))

    def _notified(self, notification: psycopg.Notify) -> None:
        with suppress(msgspec.MsgspecError):  # another program may use the channel
            rung = msgspec.json.decode(notification.payload, type=list[str])
            if rung == [self._token]:
                self._arrives, self._next_look = True, 0.0
            elif notification.pid != self._pid:
                self.waiters.ring(rung)

    def _look(self, connection: psycopg.Connection[Any]) -> None:
        """Look for all waiters, if it is time. The first look wakes all of them."""
        now = time.monotonic()
        if not self._arrives:
            self._give_up_listening(now)
            return
        if now < self._next_look:
            return
        found = connection.execute(self._look_sql).fetchone()
        assert found is not None, "the look is one row"
        if self._seen is None:
            self.is_listening = True
            self.waiters.ring([EVERYTHING])
        elif found != self._seen or self._partial_looks:
            self._wake(connection, found[1])
        with self._lock:
            self._seen, self._looked_at = found, now
            self._next_look = time.monotonic() + self._look_pause
            self._look_pause = min(2 * self._look_pause, self.pace.look)

    def _wake(self, connection: psycopg.Connection[Any], watermark: int) -> None:
        """Wake those for which there may be something new, after a change."""
        assert self._seen is not None, "there was a look before"
        written: list[str] | None = []
        if watermark > self._seen[1]:  # in a statement after the one that read it
            row = connection.execute(_WRITTEN, (self._seen[1], watermark)).fetchone()
            written = row[0] if row is not None else None
        self._partial_looks += 1
        if written is None or self._partial_looks > MOST_PARTIAL_LOOKS:
            self._partial_looks = 0
            self.waiters.look_fully()
        else:
            self.waiters.look(written)

    def _give_up_listening(self, now: float) -> None:
        if self._probe_ends and now >= self._probe_ends:
            self._probe_ends = 0.0
            logger.warning(
                "%s: notifications do not arrive, as behind a transaction pooler: waiters poll",
                self._settings.where(),
            )

    def _lost(self, error: Exception) -> None:
        """Let waiters poll until notifications arrive again."""
        self._arrives, self._probe_ends, self._seen = False, 0.0, None
        if not isinstance(error, psycopg.Error):
            logger.error("wake-ups failed, and are tried again", exc_info=error)
        if self.is_listening:
            self.is_listening = False
            logger.info("wake-ups stopped, waiters poll: %s", redact(first_line(error)))
            self.waiters.ring([EVERYTHING])
