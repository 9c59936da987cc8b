"""The threads that handlers run on: they take messages from one queue, in order.

`concurrent.futures` could do this too, but makes a future of each message, and most handlers are
short.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from penstock.outbox.messages import ClaimedMessage


@dataclass(slots=True)
class Work:
    """A claimed message, and when it was claimed and its handler began, by the monotonic clock."""

    message: ClaimedMessage
    claimed: float
    begun: float | None = None
    #: after how many seconds of its handler the next warning is due
    warn_after: float = 0.0


class Crew:
    """Some threads that call `handle` with each message they are given, inside a `with` block."""

    def __init__(self, size: int, handle: Callable[[Work], None]) -> None:
        self._handle = handle
        self._waiting: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, name=f"penstock handler {n}") for n in range(size)
        ]

    def give(self, work: Work) -> None:
        """Have a message handled as soon as a thread is free."""
        self._waiting.put(work)

    def take_back(self) -> list[Work]:
        """Return the messages that no thread has begun with, and never will."""
        unbegun: list[Work] = []
        with suppress(queue.Empty):
            while work := self._waiting.get_nowait():
                unbegun.append(work)
        return unbegun

    def _run(self) -> None:
        while work := self._waiting.get():
            work.begun = time.monotonic()
            self._handle(work)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for _thread in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join()
