"""What a dispatcher does with a topic: its handler, and what to do when that fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

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
from penstock.log.runs_async import AsyncRunsTransactions
from penstock.loops.concurrency_async import HandlerLoop
from penstock.loops.failure_policy import FailurePolicy
from penstock.message import check_text
from penstock.outbox import join_operations, operations
from penstock.outbox.messages import ClaimedMessage

#: the name of a stream, or a function for it, plain or async
ToStream = str | Callable[[ClaimedMessage], Any]


@dataclass(frozen=True, slots=True)
class AsyncRoute:
    """The handler of a topic, and its policy. The handler returns whether it acknowledged."""

    handle: Callable[[ClaimedMessage, AsyncRunsTransactions], Awaitable[bool]]
    policy: FailurePolicy


def calling(
    function: Callable[[ClaimedMessage], Any], policy: FailurePolicy, loop: HandlerLoop
) -> AsyncRoute:
    """Call a function, plain or async, with the message."""
    if not callable(function):
        raise ValidationError("handler", function, "a function, plain or async")

    async def handle(message: ClaimedMessage, store: AsyncRunsTransactions) -> bool:
        await loop.call(function, message)
        return False

    return AsyncRoute(handle, policy)


def publishing(
    to_stream: ToStream, type: str | None, policy: FailurePolicy, loop: HandlerLoop
) -> AsyncRoute:
    """Write the message to a stream of the log and acknowledge it, in one transaction."""
    if isinstance(to_stream, str):
        write.check_stream_name(to_stream)
    elif not callable(to_stream):
        raise ValidationError("to_stream", to_stream, "a stream's name, or a function for it")
    if type is not None:
        check_text("type", type)

    async def handle(message: ClaimedMessage, store: AsyncRunsTransactions) -> bool:
        try:
            stream_name = await loop.call(to_stream, message) if callable(to_stream) else to_stream
            operation = _write(message, stream_name, type, store.context)
            async with store.transaction() as transaction:
                await transaction.run(operation)
                finish = operations.finish([message.id], message.token, "done")
                if await transaction.run(finish):
                    raise StaleLease((str(message.id),))
        except (ValidationError, DuplicateMessageId) as error:
            raise PermanentFailure(f"it cannot be published: {error}") from error
        return True

    return AsyncRoute(handle, policy)


def _write(
    message: ClaimedMessage, stream_name: str, type: str | None, context: LogContext
) -> Operation[int]:
    if not isinstance(message.payload, dict):
        raise ValidationError("payload", message.payload, "a JSON object")
    metadata = {"correlation_id": message.correlation_id} if message.correlation_id else None
    return write.write_message(
        context, stream_name, type or message.topic, message.payload, metadata, id=message.id
    )


async def _resolve(message: ClaimedMessage, store: AsyncRunsTransactions) -> bool:
    """Resolve the join, or let the wait sleep on until its last step."""
    try:
        await store.run(join_operations.resolve(message))
    except (JoinNotFound, psycopg.DataError, psycopg.IntegrityError) as error:
        raise PermanentFailure(first_line(error)) from error
    return True


#: A wait is never given up: nothing else would resolve its join.
WAITING = AsyncRoute(_resolve, FailurePolicy.retry(attempts=2**31, delay=0.1, longest_delay=60.0))
