"""Wait until a line is logged."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event


class _Listener(logging.Handler):
    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text
        self.found = Event()

    def emit(self, record: logging.LogRecord) -> None:
        if self._text in record.getMessage():
            self.found.set()


@contextmanager
def logged(text: str, by: str = "penstock") -> Iterator[Event]:
    """Yield an event that is set once that logger logs a line with that text."""
    listener, logger = _Listener(text), logging.getLogger(by)
    logger.addHandler(listener)
    try:
        yield listener.found
    finally:
        logger.removeHandler(listener)
