"""Calling handlers: inside the middleware, and as often as the failure policy allows."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from penstock.consumers.handlers import Handler, Middleware, refuse_generator, wrapped
from penstock.errors import (
    DatabaseUnreachable,
    HandlerFailed,
    PoolExhausted,
    PositionConflict,
    first_line,
)
from penstock.loops.concurrency_async import StopEvent, run_handler
from penstock.loops.failure_policy import FailurePolicy
from penstock.message import RecordedMessage

logger = logging.getLogger("penstock")


class AsyncHandlerCalls:
    """Calls the handlers of one consumer."""

    def __init__(
        self,
        consumer_id: str,
        middleware: tuple[Middleware, ...],
        policy: FailurePolicy,
        stopping: StopEvent,
    ) -> None:
        self._consumer_id = consumer_id
        self._middleware = middleware
        self.policy = policy
        self._stopping = stopping

    @property
    def is_stopping(self) -> bool:
        """Whether the consumer was told to stop."""
        return self._stopping.is_set()

    async def run(self, handler: Handler, message: RecordedMessage, *transaction: Any) -> None:
        """Call a handler once, inside the middleware."""
        if self._middleware:
            call = partial(self._call, handler, transaction)
            await run_handler(wrapped(self._middleware, call), message)
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
                await self._stopping.wait_for(self.policy.pause(attempt))
            if self._stopping.is_set():
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
        if is_last and not self._stopping.is_set():
            return  # it is raised
        logger.warning(
            "consumer %s: attempt %d of %d on %s at %d failed: %s",
            self._consumer_id,
            attempt,
            self.policy.attempts,
            message.type,
            message.global_position,
            first_line(error),
        )
