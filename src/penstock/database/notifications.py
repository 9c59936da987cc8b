"""Notifications to other processes: which names are to be sent, and when.

A name that is sent all the time is sent less often than one that was not sent lately, so that a
notification costs little where many messages are written, and is sent at once where few are.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any, LiteralString

import msgspec
import psycopg

from penstock.database.operation import Operation, call
from penstock.database.waiters import EVERYTHING

CHANNEL = "penstock"
LONGEST_PAYLOAD = 7_900  # bytes; PostgreSQL refuses 8,000

# in seconds
#: between two notifications; between any two, and between two for the same name, of a store that
#: writes all the time
SHORTEST_GAP, LONGEST_GAP, LONGEST_GAP_OF_A_NAME = 0.005, 0.02, 0.1
#: how many names have a gap of their own
MOST_GAPS = 1_000

#: A notification gives its transaction an id, and so its commit would wait for the disk, with the
#: lock on the whole server. There is nothing to keep on disk.
NOTIFY: LiteralString = "select set_config('synchronous_commit', 'off', true), pg_notify(%s, %s)"


def notification(names: Iterable[str]) -> Operation[None]:
    """Notify of these names. Run it after the commit of what was written, never before."""
    return call("notify", NOTIFY, (CHANNEL, _payload(names)), lambda _: None)


def _payload(names: Iterable[str]) -> str:
    """Return the names as JSON; if that is too long for a notification, all waiters are woken."""
    text = msgspec.json.encode(sorted(names))
    return text.decode() if len(text) <= LONGEST_PAYLOAD else f'["{EVERYTHING}"]'


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


class Sender:
    """The names to be sent. Any thread adds some; one thread sends them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: set[str] = set()
        self._gap, self._gaps = Gap(LONGEST_GAP), dict[str, Gap]()

    def add(self, names: Iterable[str]) -> bool:
        """Add names, and return whether some of them are new."""
        with self._lock:
            is_new = not self._pending.issuperset(names)
            self._pending.update(names)
        return is_new

    def take_all(self) -> set[str]:
        """Take all names, to send them now or never."""
        with self._lock:
            names, self._pending = self._pending, set()
        return names

    def take_due(self) -> set[str]:
        """Take the names that may be sent now."""
        now, gaps = time.monotonic(), self._gaps
        with self._lock:
            if now < self._gap.ends:
                return set()
            due = {one for one in self._pending if one not in gaps or now >= gaps[one].ends}
            self._pending -= due
        return due

    def next_due(self) -> float | None:
        """Return when the next name may be sent, by the monotonic clock; None if there is none."""
        with self._lock:
            if not self._pending:
                return None
            gaps = self._gaps
            first = min(gaps[one].ends if one in gaps else 0.0 for one in self._pending)
            return max(first, self._gap.ends)

    def send(self, cursor: psycopg.ClientCursor[Any], names: set[str]) -> None:
        """Send names to the other processes, and begin their gaps."""
        if not names:
            return
        try:
            cursor.execute(NOTIFY, (CHANNEL, _payload(names)))  # bound here: no plan is made
        except psycopg.Error:
            self.add(names)
            raise
        now = time.monotonic()
        if len(self._gaps) > MOST_GAPS:
            self._gaps = {name: gap for name, gap in self._gaps.items() if now < gap.ends}
        self._gap.begin(now)
        for name in names:
            self._gaps.setdefault(name, Gap(LONGEST_GAP_OF_A_NAME)).begin(now)
