"""Wait for something to be logged."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event


class _Listener(logging.Handler):
    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text
        self.heard = Event()

    def emit(self, record: logging.LogRecord) -> None:
        if self._text in record.getMessage():
            self.heard.set()


@contextmanager
def told(text: str, by: str = "penstock") -> Iterator[Event]:
    """Give an event that is set as soon as that logger logs something with that text."""
    listener, logger = _Listener(text), logging.getLogger(by)
    logger.addHandler(listener)
    try:
        yield listener.heard
    finally:
        logger.removeHandler(listener)
