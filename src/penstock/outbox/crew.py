"""The threads that handlers run on: they take messages from one queue, in order.

`concurrent.futures` could do this too, but makes a future of each message, and most handlers are
short.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from penstock.outbox.messages import ClaimedMessage


class Crew:
    """Some threads that call `work` with each message they are given, inside a `with` block."""

    def __init__(self, size: int, work: Callable[[ClaimedMessage], None]) -> None:
        self._work = work
        self._waiting: queue.SimpleQueue[ClaimedMessage | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, name=f"penstock handler {n}") for n in range(size)
        ]

    def give(self, message: ClaimedMessage) -> None:
        """Have a message worked on as soon as a thread is free."""
        self._waiting.put(message)

    def take_back(self) -> list[ClaimedMessage]:
        """Return the messages that no thread has begun with, and never will."""
        unbegun: list[ClaimedMessage] = []
        with suppress(queue.Empty):
            while message := self._waiting.get_nowait():
                unbegun.append(message)
        return unbegun

    def _run(self) -> None:
        while message := self._waiting.get():
            self._work(message)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for _thread in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join()
