"""eventsourcing's recorder with POSTGRES_ENABLE_DB_FUNCTIONS: its insert function takes no lock."""

from __future__ import annotations

from functools import partial

from bench.loss import recorder
from bench.loss.recorder import everything

__all__ = ["everything", "tail", "writer"]

writer = partial(recorder.writer, functions="yes")
tail = partial(recorder.tail, functions="yes")
