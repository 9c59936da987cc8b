"""The states of the boundaries that a store decided on last.

They are values: nobody changes one, so threads and tasks share them without waiting for each other.
A decider is recognised by its identity: create it once, not for each decision.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Any

Key = tuple[int, Hashable]


class StateCache:
    """A limited number of states, the most recently used, by decider and conditions."""

    def __init__(self, size: int = 1000) -> None:
        self._size = size
        # with their deciders: as long as one is in use, no other object has its `id`
        self._entries: OrderedDict[Key, tuple[object, Any]] = OrderedDict()
        self._lock = Lock()
        self._warned: set[Hashable] = set()

    def get(self, decider: object, conditions: Hashable) -> Any:
        """Return the state, or None."""
        key = (id(decider), conditions)
        with self._lock:
            if key not in self._entries:
                return None
            self._entries.move_to_end(key)
            return self._entries[key][1]

    def put(self, decider: object, conditions: Hashable, state: object) -> None:
        """Keep a state, in place of the one before and of those not used for the longest time."""
        key = (id(decider), conditions)
        with self._lock:
            self._entries[key] = (decider, state)
            self._entries.move_to_end(key)
            while len(self._entries) > self._size:
                self._entries.popitem(last=False)

    def warns_first(self, about: Hashable) -> bool:
        """Whether this is the first warning about something, so that it is logged once."""
        with self._lock:
            first = about not in self._warned
            self._warned.add(about)
            return first

    def __len__(self) -> int:
        return len(self._entries)
