"""Calling handlers: inside the middleware, and as often as the failure policy allows.

A message that is parked after the last attempt is handled again when an operator has asked for it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from penstock.consumers import parked
from penstock.consumers.handlers import Handler, Middleware, Routes, refuse_generator
from penstock.consumers.parked import ParkedMessage
from penstock.consumers.parked_stream_async import read_parked
from penstock.errors import (
    DatabaseUnreachable,
    HandlerFailed,
    PoolExhausted,
    PositionConflict,
    first_line,
)
from penstock.log import read
from penstock.log.runs_async import AsyncRunsTransactions
from penstock.loops.concurrency_async import StopEvent, run_handler
from penstock.loops.failure_policy import FailurePolicy
from penstock.message import RecordedMessage

logger = logging.getLogger("penstock")

#: how often an idle consumer looks whether a retry was requested, in seconds
LOOK_INTERVAL = 1.0


@dataclass(frozen=True, slots=True)
class AsyncHandlerCalls:
    """Calls the handlers of one consumer."""

    consumer_id: str
    middleware: tuple[Middleware, ...]
    policy: FailurePolicy
    stopping: StopEvent

    async def run(self, handler: Handler, message: RecordedMessage, *transaction: Any) -> None:
        """Call a handler once, inside the middleware; the first is the outermost."""
        if self.middleware:
            call = partial(self._call, handler, transaction)
            for one in reversed(self.middleware):
                call = partial(_inside, one, call)
            await run_handler(call, message)
        else:
            await self._call(handler, transaction, message)

    async def _call(
        self, handler: Handler, transaction: tuple[Any, ...], message: RecordedMessage
    ) -> None:
        result = await run_handler(handler, message, *transaction)
        if result is not None:
            refuse_generator(result)

    async def attempt(
        self, call: Callable[[], Awaitable[None]], message: RecordedMessage
    ) -> Exception | None:
        """Call as often as the policy allows. Return the last error if every call failed."""
        for attempt in range(1, self.policy.attempts + 1):
            try:
                await call()
                return None
            except (DatabaseUnreachable, PoolExhausted, PositionConflict):
                raise  # not the handler's failure
            except Exception as error:
                failure = error
                self._log(message, attempt, error)
            if attempt < self.policy.attempts:
                await self.stopping.wait_for(self.policy.pause(attempt))
            if self.stopping.is_set():
                break
        return failure

    def failed(self, message: RecordedMessage, error: Exception) -> HandlerFailed:
        """Return the error that stops a consumer after the last attempt."""
        return HandlerFailed(
            message.type,
            message.stream_name,
            message.global_position,
            self.policy.attempts,
            f"{type(error).__name__}: {first_line(error)}",
        )

    def _log(self, message: RecordedMessage, attempt: int, error: Exception) -> None:
        is_last = attempt == self.policy.attempts and not self.policy.parks
        if is_last and not self.stopping.is_set():
            return  # it is raised
        logger.warning(
            "consumer %s: attempt %d of %d on %s at %d failed: %s",
            self.consumer_id,
            attempt,
            self.policy.attempts,
            message.type,
            message.global_position,
            first_line(error),
        )


def _inside(
    middleware: Middleware, call: Callable[[RecordedMessage], Any], message: RecordedMessage
) -> Any:
    return middleware(message, call)


@dataclass(eq=False)
class AsyncParkedRetries:
    """Retries the messages of one consumer's parked stream."""

    store: AsyncRunsTransactions
    stream_name: str
    routes: Routes
    calls: AsyncHandlerCalls
    transactional: bool
    #: the version of the stream up to which all requested retries are done
    version: int | None = None
    next_look: float = 0.0

    @property
    def is_due(self) -> bool:
        """Whether it is time to look for requests."""
        return self.calls.policy.parks and time.monotonic() >= self.next_look

    async def run(self) -> int:
        """Handle the messages for which a retry was requested. Return how many succeeded."""
        if not self.calls.policy.parks:
            return 0
        self.next_look = time.monotonic() + LOOK_INTERVAL
        version = await self.store.run(read.stream_version(self.store.context, self.stream_name))
        if version is None or version == self.version:
            return 0
        waiting = (await read_parked(self.store, self.stream_name)).messages
        succeeded = sum([await self._retry(one) for one in waiting if one.retry_requested])
        self.version = version  # not before: if one raises, the next run retries it
        return succeeded

    async def _retry(self, waiting: ParkedMessage) -> bool:
        """Handle a parked message again, and park it again if that fails."""
        message = waiting.message
        handler = None if self.calls.stopping.is_set() else self.routes.handler_of(message)
        if handler is None:
            return False
        error = await self.calls.attempt(lambda: self._call(handler, message), message)
        if error is not None and not self.calls.stopping.is_set():
            attempts = waiting.attempts + self.calls.policy.attempts
            await self.store.run(
                parked.park(self.store.context, self.stream_name, message, error, attempts)
            )
        return error is None

    async def _call(self, handler: Handler, message: RecordedMessage) -> None:
        handled = parked.mark(self.store.context, self.stream_name, "Handled", message)
        if self.transactional:
            async with self.store.transaction() as transaction:
                await self.calls.run(handler, message, transaction)
                await transaction.run(handled)
        else:
            await self.calls.run(handler, message)
            await self.store.run(handled)
