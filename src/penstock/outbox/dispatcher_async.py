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

from penstock.errors import ValidationError
from penstock.log.context import is_whole
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
from penstock.outbox import routes_async
from penstock.outbox.dispatch_loop_async import AsyncDispatchLoop
from penstock.outbox.in_progress import DispatchOptions
from penstock.outbox.messages import WAIT_TOPIC
from penstock.outbox.operations import LONGEST_AGE, LONGEST_LEASE, SHORTEST_LEASE
from penstock.outbox.provider import StoreProvider
from penstock.outbox.routes_async import AsyncRoute, ToStream

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
        for name, value in (
            ("concurrency", concurrency),
            ("batch_size", batch_size),
            ("polling_interval_ms", polling_interval_ms),
        ):
            if not is_whole(value) or value < 1:
                raise ValidationError(name, value, "at least 1")
        self.owner = check_text("owner", owner or this_process())
        self._policy = checked_policy(on_failure, DEFAULT_POLICY)
        self._routes: dict[str, AsyncRoute] = {WAIT_TOPIC: routes_async.WAITING}
        self._handler_loop = HandlerLoop()
        options = DispatchOptions(
            owner=self.owner,
            concurrency=concurrency,
            batch_size=batch_size,
            lease=seconds("lease", lease, least=SHORTEST_LEASE, most=LONGEST_LEASE),
            polling_interval=polling_interval_ms / 1000,
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
            self._add(topic, routes_async.calling(function, policy, self._handler_loop))
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
        policy = checked_policy(on_failure, self._policy)
        self._add(topic, routes_async.publishing(to_stream, type, policy, self._handler_loop))

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

    def _add(self, topic: str, route: AsyncRoute) -> None:
        check_text("topic", topic)
        if topic in self._routes:
            raise ValidationError("topic", topic, "handled by one handler only")
        self._routes[topic] = route

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
