"""Retrying parked messages when an operator has asked for it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

from penstock.consumers import parked
from penstock.consumers.handler_calls_async import AsyncHandlerCalls
from penstock.consumers.handlers import Handler, Routes
from penstock.consumers.parked import ParkedMessage
from penstock.log import read
from penstock.log.runs_async import AsyncRunsTransactions
from penstock.message import RecordedMessage

#: how often an idle consumer looks whether a retry was requested, in seconds
LOOK_INTERVAL = 1.0


class AsyncParkedRetries:
    """Retries the messages of one consumer's parked stream."""

    def __init__(
        self,
        store: AsyncRunsTransactions,
        stream_name: str,
        routes: Routes,
        calls: AsyncHandlerCalls,
        transactional: bool,
    ) -> None:
        self._store = store
        self._stream_name = stream_name
        self._routes = routes
        self._calls = calls
        self._transactional = transactional
        self._version: int | None = None
        self._next_look = 0.0

    @property
    def is_due(self) -> bool:
        """Whether it is time to look for requests."""
        return self._calls.policy.parks and time.monotonic() >= self._next_look

    async def run(self) -> int:
        """Handle the messages for which a retry was requested. Return how many succeeded."""
        if not self._calls.policy.parks:
            return 0
        self._next_look = time.monotonic() + LOOK_INTERVAL
        context = self._store.context
        version = await self._store.run(read.stream_version(context, self._stream_name))
        if version is None or version == self._version:
            return 0
        waiting = parked.fold([event async for event in self._events()]).values()
        succeeded = sum([await self._retry(one) for one in waiting if one.retry_requested])
        self._version = version  # not before: if one raises, the next run retries it
        return succeeded

    def forget(self) -> None:
        """Read the whole stream at the next look."""
        self._version = None

    async def _retry(self, waiting: ParkedMessage) -> bool:
        """Handle a parked message again, and park it again if that fails."""
        message = waiting.message
        handler = None if self._calls.is_stopping else self._routes.handler_of(message)
        if handler is None:
            return False
        error = await self._calls.attempt(lambda: self._call(handler, message), message)
        if error is not None and not self._calls.is_stopping:
            attempts = waiting.attempts + self._calls.policy.attempts
            await self._store.run(
                parked.park(self._store.context, self._stream_name, message, error, attempts)
            )
        return error is None

    async def _call(self, handler: Handler, message: RecordedMessage) -> None:
        handled = parked.mark(self._store.context, self._stream_name, "Handled", message)
        if self._transactional:
            async with self._store.transaction() as transaction:
                await self._calls.run(handler, message, transaction)
                await transaction.run(handled)
        else:
            await self._calls.run(handler, message)
            await self._store.run(handled)

    async def _events(self) -> AsyncIterator[RecordedMessage]:
        position = 0
        while page := await self._store.run(
            read.get_stream_messages(self._store.context, self._stream_name, position)
        ):
            for event in page:
                yield event
            position = parked.next_position(page)
