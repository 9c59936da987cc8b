"""What is waited for, and who waits: the names of a wake-up, and the waiters of one store.

A wake-up has the names of what was written. A waiter has the names of what it waits for, and is
woken if they have one in common.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import lru_cache

from penstock.message.names import category as category_of

#: wakes every waiter
EVERYTHING = "*"
#: wakes those that wait for any message
LOG = "log"
#: wakes those that wait for types, when it is not known which were written
TYPES = "types"
#: wakes those that wait for topics, when it is not known which were enqueued
OUTBOX = "outbox"


def written(stream_names: Iterable[str], types: Iterable[str] | None) -> frozenset[str]:
    """Return the names to wake for after messages were written; None: their types are not known."""
    found = {LOG, TYPES} if types is None else {LOG, *map(of_type, types)}
    for stream_name in stream_names:
        category = category_of(stream_name)
        found.add(of_category(category))
        if category == "queue":  # all queues share this category
            found.add(of_stream(stream_name))
    return frozenset(found)


def written_one(stream_name: str, type: str) -> frozenset[str]:
    """Return the names to wake for after one message was written."""
    category = category_of(stream_name)
    if category == "queue":
        return written([stream_name], [type])
    return _written_to(category, type)


@lru_cache(maxsize=1000)
def _written_to(category: str, type: str) -> frozenset[str]:
    return written([category], [type])


def of_category(category: str) -> str:
    """Return the name to wait for messages of a category, or `$all`."""
    return LOG if category == "$all" else f"category:{category}"


def of_stream(stream_name: str) -> str:
    """Return the name to wait for messages of the stream of a queue."""
    return f"stream:{stream_name}"


def of_type(type: str) -> str:
    """Return the name to wait for messages of a type."""
    return f"type:{type}"


def of_topic(topic: str) -> str:
    """Return the name to wait for messages of a topic of the outbox."""
    return f"topic:{topic}"


def of_group(group_id: str) -> str:
    """Return the name to wait for partitions of a consumer group."""
    return f"group:{group_id}"


def of_save(category: str, consumer_id: str) -> str:
    """Return the name with which a consumer is asked to save its position."""
    return f"save:{category}-{consumer_id}"


class Registration:
    """One waiter."""

    def __init__(self, wanted: Iterable[str], wake: Callable[[], None]) -> None:
        self.wanted = frozenset(wanted)
        #: ends its sleep; any thread may call it
        self.wake = wake
        #: whether it was woken since it has reset this, and whether by a name
        self.is_woken = self.is_notified = False
        #: which of the names it was woken for since it has reset this
        self.notified_of: set[str] = set()


class Waiters:
    """The waiters of one store. Any thread may call the methods."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: set[Registration] = set()
        self._by_name: dict[str, set[Registration]] = {}

    def add(self, one: Registration) -> None:
        """Wake this waiter from now on."""
        with self._lock:
            self._all.add(one)
            for name in one.wanted:
                self._by_name.setdefault(name, set()).add(one)

    def remove(self, one: Registration) -> None:
        """Forget a waiter."""
        with self._lock:
            self._all.discard(one)
            for name in one.wanted:
                self._by_name.get(name, set()).discard(one)
                if not self._by_name.get(name):
                    self._by_name.pop(name, None)

    def notify(self, names: Iterable[str]) -> None:
        """Wake those that wait for one of these names."""
        found = self._waiting_for(names)
        for name, one in found:
            one.notified_of.add(name)
            one.is_woken = one.is_notified = True
        for one in {one for _, one in found}:
            one.wake()

    def look(self, names: Iterable[str]) -> None:
        """Let those look that wait for one of these names, for which nobody has notified them."""
        for one in {one for _, one in self._waiting_for(names)}:
            one.is_woken = True
            one.wake()

    def looked_for(self) -> tuple[list[str], list[str], list[str]]:
        """Return the queues, the topics and the groups that are waited for."""
        with self._lock:
            names = list(self._by_name)
        streams, topics, groups = (
            [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
            for prefix in (of_stream(""), of_topic(""), of_group(""))
        )
        return streams, topics, groups

    def _waiting_for(self, names: Iterable[str]) -> list[tuple[str, Registration]]:
        with self._lock:
            return [
                (name, one)
                for name in names
                for one in (self._all if name == EVERYTHING else self._by_name.get(name, ()))
            ]
