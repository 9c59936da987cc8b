"""What a dispatcher does with a topic: its handler, and what to do when that fails."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import psycopg

from penstock.database.operation import Operation
from penstock.errors import (
    DuplicateMessageId,
    JoinNotFound,
    PermanentFailure,
    StaleLease,
    ValidationError,
    first_line,
)
from penstock.log import write
from penstock.log.context import LogContext
from penstock.loops.failure_policy import FailurePolicy
from penstock.message import check_text
from penstock.outbox import joins, operations
from penstock.outbox.messages import ClaimedMessage

Result = TypeVar("Result")
ToStream = str | Callable[[ClaimedMessage], str]


class RunsTransactions(Protocol):
    """What a dispatcher needs of a store."""

    context: LogContext

    def run(self, operation: Operation[Result]) -> Result:
        """Run an operation and return its result."""

    def transaction(self) -> AbstractContextManager[Any]:
        """Return a transaction for a `with` block."""


@dataclass(frozen=True, slots=True)
class Route:
    """The handler of a topic, which says whether it settled the message itself, and its policy."""

    handle: Callable[[ClaimedMessage, RunsTransactions], bool]
    policy: FailurePolicy


class EventLoop:
    """An event loop on a thread of its own, for the async handlers of a dispatcher.

    asyncio lets SystemExit and KeyboardInterrupt out of a task end the loop. One handler, or a task
    that it started, would end those of all others; so the loop goes on, and the error is the
    task's.
    """

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closing = False

    def wait_for(self, awaitable: Any) -> None:
        """Await it on the loop, and return when it is done."""
        asyncio.run_coroutine_threadsafe(_awaited(awaitable), self._running()).result()

    def close(self) -> None:
        """End the loop and what is left on it. It starts again when it is needed again."""
        if self._loop and self._thread:
            self._closing = True
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop = None

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is None:
                self._closing = False
                runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
                self._loop = runner.get_loop()
                self._thread = threading.Thread(
                    target=self._run, args=(runner, self._loop), name="penstock handlers"
                )
                self._thread.daemon = True
                self._thread.start()
            return self._loop

    def _run(self, runner: asyncio.Runner, loop: asyncio.AbstractEventLoop) -> None:
        while not self._closing:
            with suppress(SystemExit, KeyboardInterrupt):
                loop.run_forever()
        with suppress(SystemExit, KeyboardInterrupt):
            runner.close()  # cancels what is left


async def _awaited(awaitable: Any) -> None:
    await awaitable


def calling(
    function: Callable[[ClaimedMessage], Any], policy: FailurePolicy, loop: EventLoop
) -> Route:
    """Call a function, plain or async, with the message."""
    if not callable(function):
        raise ValidationError("handler", function, "a function, plain or async")

    def handle(message: ClaimedMessage, store: RunsTransactions) -> bool:
        result = function(message)
        if inspect.isawaitable(result):
            loop.wait_for(result)
        return False

    return Route(handle, policy)


def publishing(to_stream: ToStream, type: str | None, policy: FailurePolicy) -> Route:
    """Write the message to a stream of the log and acknowledge it, in one transaction."""
    if isinstance(to_stream, str):
        write.check_stream_name(to_stream)
    elif not callable(to_stream):
        raise ValidationError("to_stream", to_stream, "a stream's name, or a function for it")
    if type is not None:
        check_text("type", type)

    def handle(message: ClaimedMessage, store: RunsTransactions) -> bool:
        try:
            operation = _write(message, to_stream, type, store.context)
            with store.transaction() as transaction:
                transaction.run(operation)
                stale = transaction.run(operations.finish([message.id], message.token, "done"))
                if stale:
                    raise StaleLease((str(message.id),))
        except (ValidationError, DuplicateMessageId) as error:
            raise PermanentFailure(f"it cannot be published: {error}") from error
        return True

    return Route(handle, policy)


def _write(
    message: ClaimedMessage, to_stream: ToStream, type: str | None, context: LogContext
) -> Operation[int]:
    stream_name = to_stream if isinstance(to_stream, str) else to_stream(message)
    if not isinstance(message.payload, dict):
        raise ValidationError("payload", message.payload, "a JSON object")
    metadata = {"correlation_id": message.correlation_id} if message.correlation_id else None
    return write.write_message(
        context, stream_name, type or message.topic, message.payload, metadata, id=message.id
    )


def _resolve(message: ClaimedMessage, store: RunsTransactions) -> bool:
    """Resolve the join, or let the wait sleep on until its last step."""
    try:
        store.run(joins.resolve(message))
    except (JoinNotFound, psycopg.DataError, psycopg.IntegrityError) as error:
        raise PermanentFailure(first_line(error)) from error
    return True


#: A wait is never given up: nobody else would resolve its join.
WAITING = Route(_resolve, FailurePolicy.retry(attempts=2**31, delay=0.1, longest_delay=60.0))
