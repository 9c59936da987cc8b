"""Wake-ups: what waits for something new sleeps until it is there, and writers do not wait for it.

`NOTIFY` inside a writing transaction takes a lock on the whole server until that commit is on disk,
so writers would commit one after the other. It is never sent there. After its commit a store wakes
the waiters of its own process directly, and notifies the other processes in a transaction of its
own, on another connection and at most once in some milliseconds (`notifications.py`). One thread
listens on the same connection for all waiters of the store. The writer sends the notification
itself if it need not wait for that, else the thread does.

The promise: no waiter sleeps past its safety look. A notification may be lost, and a writer need
not send one: plain SQL, another client, a process that was killed after its commit. That costs a
delay, never a message. How it is kept:

* A waiter registers, looks, and then sleeps. A wake-up after the registration ends the sleep, also
  if it comes between the look and the sleep.
* The thread looks for all waiters together, about once a second and in one statement: which names
  were written since the last look, and which of the queues, topics and groups that are waited for
  have something (`sql/penstock/61_safety_look.sql`). It wakes those that wait for one of them. So
  waiters that have nothing to do ask nothing, whatever else is committed on the server. If a waiter
  then finds something that nobody notified of, the next looks are more frequent; and a look that
  takes long is made less often. In a genuine Message DB, which has none of these tables, every
  commit wakes all waiters.
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
from penstock.database.notifications import CHANNEL, NOTIFY, SHORTEST_GAP, Line, Pending
from penstock.database.waiters import EVERYTHING, Waiters
from penstock.errors import first_line
from penstock.settings import Settings, redact

logger = logging.getLogger("penstock")

#: seconds between two attempts to connect
SHORTEST_RETRY, LONGEST_RETRY = 0.1, 5.0
#: the pause after a look, in multiples of what it took
LEAST_PAUSE = 50

_LOOK: LiteralString = "select * from penstock.safety_look(%s, %s::text[], %s::text[], %s::text[])"
_FIRST_LOOK: LiteralString = "select penstock.watermark(), null::text[]"
#: every commit changes the snapshot
_LOOK_AT_MESSAGE_DB: LiteralString = "select pg_current_snapshot()::text, null::text[]"


@dataclass(frozen=True)
class Pace:
    """How often a store looks for its waiters, in seconds."""

    #: between two safety looks while nothing happens
    look: float = 1.25
    #: after which a waiter looks itself, if the thread has not
    patience: float = 1.75
    #: within which a notification to oneself arrives, unless there is a pooler
    probe: float = 1.0


def notifications_arrive(
    connection: psycopg.Connection[Any], other: psycopg.Connection[Any], timeout: float
) -> bool:
    """Return whether a notification that one connection sends arrives on the other."""
    token = str(uuid4())
    connection.execute("listen penstock")
    other.execute(NOTIFY, (CHANNEL, f'["{token}"]'))
    deadline = time.monotonic() + timeout
    while (left := deadline - time.monotonic()) > 0:
        if any(token in one.payload for one in connection.notifies(timeout=left, stop_after=1)):
            return True
    return False


class WakeUps:
    """The wake-ups of one store: who waits in this process, and the thread that sends and listens.

    The thread starts with the first name to send, or with the first waiter that sleeps.
    """

    def __init__(self, settings: Settings, edition: Edition, pace: Pace | None = None) -> None:
        self.pace = pace or Pace()
        self.waiters = Waiters()
        #: whether notifications are known to arrive
        self.is_listening = False
        self._settings = settings
        self._has_watermark = edition.has_watermark
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._pipe = (-1, -1)  # what is written to the second wakes the thread
        self._is_closed = False
        self._wants_to_listen = False
        self._pending = Pending()
        self._line: Line | None = None
        self._pid = 0  # of the connection's server process
        self._token = ""  # of the notification to oneself
        self._probe_ends, self._arrives = 0.0, False
        self._seen: Any = None  # up to where the last look was made
        self._looked_at = 0.0
        self._look_pause, self._next_look = self.pace.look, 0.0

    def notify(self, names: Iterable[str]) -> None:
        """Wake those that wait for one of these names, here and in other processes. Never waits."""
        if self._is_closed or os.getpid() != self._process:
            return
        self.waiters.notify(names)
        if self._pending.add(names):
            line = self._line
            if line is not None and line.send():
                return
            with self._lock:
                self._tell_thread()

    def listen(self) -> None:
        """Listen from now on: a waiter is going to sleep. Never waits."""
        if not self._wants_to_listen and os.getpid() == self._process:
            with self._lock:
                self._wants_to_listen = True
                self._tell_thread()

    def look_again(self, pause: float) -> None:
        """Look again after this pause: the last look has found what nobody notified of."""
        with self._lock:
            self._look_pause = min(max(pause, SHORTEST_GAP), self.pace.look)
            self._next_look = min(self._next_look, time.monotonic() + self._look_pause)
            self._tell_thread()

    def has_looked_since(self, moment: float) -> bool:
        """Whether the thread has looked for all waiters since then, by the monotonic clock."""
        return self.is_listening and self._looked_at >= moment

    def close(self, timeout: float = 1.0) -> frozenset[str]:
        """Stop listening and wake all waiters. Return the names that are not sent."""
        if os.getpid() != self._process:
            return frozenset()
        with self._lock:
            self._is_closed = True
            if self._thread is not None:
                self._tell_thread()
        self.is_listening = False
        self.waiters.notify([EVERYTHING])
        if self._thread is not None:
            with suppress(RuntimeError):  # a signal's exception may have interrupted its start
                self._thread.join(timeout)
        return frozenset(self._pending.take_all())

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
        connection.add_notify_handler(lambda one: self._notified(one.payload, one.pid))
        self._pid = connection.info.backend_pid
        return connection

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self._settings.conninfo(), autocommit=True, prepare_threshold=None)

    def _serve(self, connection: psycopg.Connection[Any]) -> None:
        """Send, listen and look, until the store is closed or the connection is lost."""
        listens, line = False, Line(connection, self._pending)
        self._line = line
        try:
            with self._selector() as selector:
                selector.register(connection.fileno(), selectors.EVENT_READ)
                while not self._is_closed:
                    for payload, pid in line.receive():
                        self._notified(payload, pid)
                    line.go_on()
                    if self._wants_to_listen and not listens:
                        listens = self._listen(line)
                    if self._look(line):
                        continue  # notifications may have arrived with its result
                    self._wait(selector, None if line.awaits_reply else self._seconds_left())
            line.finish(self.pace.probe)
        finally:
            self._line = None
            line.end()

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
        due = self._pending.next_due()
        moments = [] if due is None else [due]
        if self.is_listening:
            moments.append(self._next_look)
        elif self._probe_ends:
            moments.append(self._probe_ends)
        return max(0.0, min(moments) - time.monotonic()) if moments else None

    def _listen(self, line: Line) -> bool:
        """Listen, and find out whether notifications arrive: see `_notified`."""
        with line.free() as connection:
            if connection is None:
                return False
            connection.execute("listen penstock")
        self._token = str(uuid4())
        with closing(self._connect()) as other:
            other.execute(NOTIFY, (CHANNEL, f'["{self._token}"]'))
        self._probe_ends = time.monotonic() + self.pace.probe
        return True

    def _notified(self, payload: bytes | str, pid: int) -> None:
        with suppress(msgspec.MsgspecError):  # another program may use the channel
            names = msgspec.json.decode(payload, type=list[str])
            if names == [self._token]:
                self._arrives, self._next_look = True, 0.0
            elif pid != self._pid:
                self.waiters.notify(names)

    def _look(self, line: Line) -> bool:
        """Look for all waiters, if it is time. The first look wakes all of them."""
        now = time.monotonic()
        if not self._arrives:
            self._give_up_listening(now)
            return False
        if now < self._next_look:
            return False
        with line.free() as connection:
            if connection is None:  # its reply wakes the thread
                return False
            seen, names = self._looked(connection)
        if self._seen is None:
            self.is_listening = True
            self.waiters.notify([EVERYTHING])
        else:
            self.waiters.look(names)
        with self._lock:
            self._seen, self._looked_at = seen, now
            took = time.monotonic() - now
            self._next_look = now + took + max(self._look_pause, LEAST_PAUSE * took)
            self._look_pause = min(2 * self._look_pause, self.pace.look)
        return True

    def _looked(self, connection: psycopg.Connection[Any]) -> tuple[Any, list[str]]:
        """Return up to where there was something to look at, and whom to wake for it."""
        sql, arguments = _FIRST_LOOK, tuple[Any, ...]()
        if not self._has_watermark:
            sql = _LOOK_AT_MESSAGE_DB
        elif self._seen is not None:
            sql, arguments = _LOOK, (self._seen, *self.waiters.looked_for())
        row = connection.execute(sql, arguments).fetchone()
        assert row is not None, "the look is one row"
        seen, names = row
        if names is None:
            names = [EVERYTHING] if seen != self._seen else []
        return seen, names

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
            self.waiters.notify([EVERYTHING])
