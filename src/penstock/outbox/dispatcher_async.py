"""A dispatcher: claims due messages of the outbox and calls their handlers.

The promise: each message is handled at least once. It is acknowledged after its handler returned,
in batches; a message of a dispatcher that died comes again when its lease ends. A handler that
raises is tried again, with growing pauses, and then the message fails and keeps its last error.
Only messages of topics with a handler are claimed; others are left to other dispatchers.

Each store has a loop of its own (`dispatch_loop.py`), so that a database that is away delays none
of the others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import psycopg

from penstock.database.operation import Operation
from penstock.errors import (
    DuplicateMessageId,
    JoinNotFound,
    PermanentFailure,
    ValidationError,
    first_line,
)
from penstock.log import write
from penstock.log.context import LogContext, check_position
from penstock.log.runs_async import AsyncRunsTransactions
from penstock.loops.concurrency_async import (
    IS_ASYNC,
    HandlerLoop,
    is_coroutine_function,
    run_to_end,
    side_by_side,
    stopping_on_signals,
)
from penstock.loops.durations import Duration, seconds
from penstock.loops.failure_policy import FailurePolicy, checked_policy
from penstock.loops.signals import this_process
from penstock.message import check_text
from penstock.outbox import join_operations, operations
from penstock.outbox.dispatch_loop_async import AsyncDispatchLoop, AsyncRoute, Handle
from penstock.outbox.in_progress import DispatchOptions
from penstock.outbox.messages import WAIT_TOPIC, ClaimedMessage
from penstock.outbox.operations import LONGEST_AGE, LONGEST_LEASE, SHORTEST_LEASE
from penstock.outbox.provider import StoreProvider

#: the name of a stream, or a function for it, plain or async
ToStream = str | Callable[[ClaimedMessage], Any]
Function = TypeVar("Function", bound=Callable[..., Any])
Result = TypeVar("Result")

DEFAULT_POLICY = FailurePolicy.retry(attempts=10, delay=1.0, longest_delay=300.0)


class AsyncDispatcher:
    """Calls handlers for the messages of one store, or of all the stores of a provider.

    Register handlers with `@dispatcher.handler("topic")`, plain or async; each gets the message.
    `run()` ends on SIGTERM, SIGINT or `stop()`, after the handlers that are running. Run as many
    dispatchers as you like.

    `concurrency` is the number of handlers that run at a time, for each store; `batch_size` the
    most messages to claim at a time. While a handler runs, the lease of its message, `lease`
    seconds long, is extended. What was done longer ago than `keep_done` is removed (None: nothing
    is). A handler that runs for more than `warn_after` seconds is named in the log, with its
    message.
    """

    def __init__(
        self,
        store: AsyncRunsTransactions | StoreProvider[AsyncRunsTransactions],
        *,
        concurrency: int = 10,
        batch_size: int = 500,
        lease: Duration = 30.0,
        owner: str | None = None,
        on_failure: FailurePolicy | None = None,
        polling_interval_ms: int = 100,
        keep_done: Duration | None = timedelta(days=7),
        warn_after: Duration = 300.0,
    ) -> None:
        self.owner = check_text("owner", owner or this_process())
        self._policy = checked_policy(on_failure, DEFAULT_POLICY)
        self._routes: dict[str, AsyncRoute] = {WAIT_TOPIC: WAITING}
        self._handler_loop = HandlerLoop()
        options = DispatchOptions(
            owner=self.owner,
            concurrency=check_position("concurrency", concurrency, 1),
            batch_size=check_position("batch_size", batch_size, 1),
            lease=seconds("lease", lease, least=SHORTEST_LEASE, most=LONGEST_LEASE),
            polling_interval=check_position("polling_interval_ms", polling_interval_ms, 1) / 1000,
            keep_done=None
            if keep_done is None
            else seconds("keep_done", keep_done, most=LONGEST_AGE),
            warn_after=seconds("warn_after", warn_after, least=SHORTEST_LEASE, most=LONGEST_LEASE),
        )
        stores = store.stores() if hasattr(store, "stores") else [store]
        self._loops = [AsyncDispatchLoop(_checked(one), self._routes, options) for one in stores]

    def handler(
        self, topic: str, *, on_failure: FailurePolicy | None = None
    ) -> Callable[[Function], Function]:
        """Decorate the handler of a topic. It gets the message; async functions are awaited."""
        check_text("topic", topic)  # here already: it may be the handler, after a bare @handler
        policy = checked_policy(on_failure, self._policy)

        def register(function: Function) -> Function:
            self._add(topic, _calling(function, self._handler_loop), policy)
            return function

        return register

    def publish(
        self,
        topic: str,
        to_stream: ToStream,
        type: str | None = None,
        *,
        on_failure: FailurePolicy | None = None,
    ) -> None:
        """Handle a topic by writing its messages to a stream of the log, each exactly once.

        `to_stream` is the name of the stream, or a function, plain or async, that gets the message
        and returns it. The payload, a JSON object, becomes the data; the outbox message's id
        becomes the message's; `type` is the topic unless given. Writing and acknowledging are one
        transaction.
        """
        self._add(topic, _publishing(to_stream, type, self._handler_loop), on_failure)

    async def run(self) -> None:
        """Dispatch messages as they become due, until `stop()`, SIGTERM or SIGINT.

        A database that is away is waited for.
        """
        await self._run_loops(AsyncDispatchLoop.run)

    async def run_once(self) -> int:
        """Claim once, as much as the handlers have room for, and handle it.

        Returns how many messages were claimed.
        """
        return sum(await self._run_loops(AsyncDispatchLoop.run_once))

    async def run_until_idle(self) -> int:
        """Dispatch until nothing is due, and return how many messages were claimed."""
        return sum(await self._run_loops(AsyncDispatchLoop.run_until_idle))

    def stop(self) -> None:
        """End `run()` after the handlers that are running; what they have not begun goes back.

        Any thread, and a signal handler, may call this.
        """
        for loop in self._loops:
            loop.stop()

    def _add(self, topic: str, handle: Handle, on_failure: FailurePolicy | None) -> None:
        check_text("topic", topic)
        if topic in self._routes:
            raise ValidationError("topic", topic, "handled by one handler only")
        self._routes[topic] = AsyncRoute(handle, checked_policy(on_failure, self._policy))

    async def _run_loops(
        self, run: Callable[[AsyncDispatchLoop], Awaitable[Result]]
    ) -> list[Result]:
        """Run the loops of all stores. One that fails stops the others."""

        async def run_or_stop_others(loop: AsyncDispatchLoop) -> Result:
            try:
                return await run(loop)
            except BaseException:
                for other in self._loops:
                    if other is not loop:
                        other.stop()
                raise

        for loop in self._loops:
            loop.reset()
        runs = [partial(run_or_stop_others, loop) for loop in self._loops]
        with stopping_on_signals(self.stop):
            try:
                return await run_to_end(lambda: side_by_side(runs), self._cancel)
            finally:
                self._handler_loop.close()

    def _cancel(self) -> None:
        for loop in self._loops:
            loop.cancel()


def _checked(store: AsyncRunsTransactions) -> AsyncRunsTransactions:
    run = getattr(store, "run", None)
    if not callable(run) or is_coroutine_function(run) is not IS_ASYNC:
        raise ValidationError("store", store, "an AsyncStore, or a provider of AsyncStores")
    return store


def _calling(function: Callable[[ClaimedMessage], Any], loop: HandlerLoop) -> Handle:
    if not callable(function):
        raise ValidationError("handler", function, "a function, plain or async")

    async def handle(message: ClaimedMessage, store: AsyncRunsTransactions) -> bool:
        await loop.call(function, message)
        return False

    return handle


def _publishing(to_stream: ToStream, type: str | None, loop: HandlerLoop) -> Handle:
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
                settled = [await transaction.run(one) for one in operations.acknowledge(message)]
                operations.refuse_stale(settled)
        except (ValidationError, DuplicateMessageId) as error:
            raise PermanentFailure(f"it cannot be published: {error}") from error
        return True

    return handle


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
