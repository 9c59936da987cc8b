"""What tests of queues and sessions share, and async ones driven from plain tests."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import psycopg

from penstock import AsyncConsumerSession


class Driven:
    """An async object whose methods run to their end before they return."""

    def __init__(self, driven: Any, loop: asyncio.Runner) -> None:
        self._driven = driven
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._driven, name)
        if not inspect.iscoroutinefunction(attribute):
            return attribute
        return lambda *args, **kwargs: self._wrapped(self._loop.run(attribute(*args, **kwargs)))

    def __enter__(self) -> Any:
        return self._wrapped(self._loop.run(self._driven.__aenter__()))

    def __exit__(self, *error: object) -> None:
        self._loop.run(self._driven.__aexit__(*error))

    def _wrapped(self, result: Any) -> Any:
        if result is self._driven:
            return self
        return Driven(result, self._loop) if isinstance(result, AsyncConsumerSession) else result


def retain_from(url: str, queue: Any, offset: int) -> None:
    """Remove the records below an offset, as retention does."""
    with psycopg.connect(url) as connection:
        connection.execute(
            "delete from message_store.messages where stream_name = %s and position < %s",
            (queue.stream_name, offset),
        )


def offsets(session: Any) -> list[int]:
    """Poll until there is no more."""
    found = []
    while (record := session.poll()) is not None:
        found.append(record.offset)
    return found
