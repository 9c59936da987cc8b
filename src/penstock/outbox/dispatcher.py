"""A dispatcher: takes due messages out of the outbox and calls their handlers.

The promise: each message is handled at least once. It is acknowledged after its handler returned,
in batches; a message of a dispatcher that died comes again when its lease ends. A handler that
raises is tried again, with growing pauses, and then the message fails with its last error kept.
Only messages of topics with a handler are claimed; others are left to other dispatchers.

Each store is served by itself (`serving.py`), so that one whose database is away keeps nobody
waiting.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, TypeVar

from penstock.errors import ValidationError
from penstock.log.context import is_whole
from penstock.loops.failure_policy import FailurePolicy, checked_policy
from penstock.loops.signals import stopping_on_signals, this_process
from penstock.message import check_text
from penstock.outbox import routes
from penstock.outbox.checks import WAIT_TOPIC, as_interval
from penstock.outbox.dispatch_loop import Serving, Terms
from penstock.outbox.provider import StoreProvider
from penstock.outbox.routes import Route, RunsTransactions, ToStream

Function = TypeVar("Function", bound=Callable[..., Any])

DEFAULT_POLICY = FailurePolicy.retry(attempts=10, delay=1.0, longest_delay=300.0)


class Dispatcher:
    """Calls handlers for the messages of one store, or of all the stores of a provider.

    Register handlers with `@dispatcher.handler("topic")`, plain or async; each gets the message.
    `run()` ends on SIGTERM, SIGINT or `stop()`, after the handlers at work. Run as many dispatchers
    as you like.

    `concurrency` is the number of handlers at work at a time, for each store; `batch_size` the most
    messages to claim at a time. A message whose handler runs is held by leases of `lease` seconds,
    one after the other. What was done longer ago than `keep_done` is removed (None: nothing is). A
    handler that runs for more than `warn_after` seconds is named in the log, with its message.
    """

    def __init__(
        self,
        store: RunsTransactions | StoreProvider[RunsTransactions],
        *,
        concurrency: int = 10,
        batch_size: int = 500,
        lease: float = 30.0,
        owner: str | None = None,
        on_failure: FailurePolicy | None = None,
        polling_interval_ms: int = 100,
        keep_done: timedelta | None = timedelta(days=7),
        warn_after: float = 300.0,
    ) -> None:
        for name, value in (
            ("concurrency", concurrency),
            ("batch_size", batch_size),
            ("polling_interval_ms", polling_interval_ms),
        ):
            if not is_whole(value) or value < 1:
                raise ValidationError(name, value, "at least 1")
        as_interval("lease", lease)
        as_interval("warn_after", warn_after)
        self.owner = check_text("owner", owner or this_process())
        self._policy = checked_policy(on_failure, DEFAULT_POLICY)
        self._routes: dict[str, Route] = {WAIT_TOPIC: routes.WAITING}
        self._loop = routes.EventLoop()
        terms = Terms(
            self.owner,
            concurrency,
            batch_size,
            lease,
            polling_interval_ms / 1000,
            keep_done,
            warn_after,
        )
        stores = store.stores() if hasattr(store, "stores") else [store]
        self._servings = [Serving(_blocking(one), self._routes, terms) for one in stores]

    def handler(
        self, topic: str, *, on_failure: FailurePolicy | None = None
    ) -> Callable[[Function], Function]:
        """Decorate the handler of a topic. It gets the message; async functions are awaited."""
        check_text("topic", topic)  # here already: it may be the handler, after a bare @handler
        policy = checked_policy(on_failure, self._policy)

        def register(function: Function) -> Function:
            self._add(topic, routes.calling(function, policy, self._loop))
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

        The payload, a JSON object, becomes the data; the outbox message's id becomes the message's;
        `type` is the topic unless given. Writing and acknowledging are one transaction.
        """
        policy = checked_policy(on_failure, self._policy)
        self._add(topic, routes.publishing(to_stream, type, policy))

    def run(self) -> None:
        """Dispatch messages as they become due, until `stop()`, SIGTERM or SIGINT."""
        with stopping_on_signals(self.stop):
            self._serve(Serving.run)

    def run_until_idle(self) -> int:
        """Dispatch until nothing is due, and return how many messages were claimed."""
        return sum(self._serve(Serving.run_until_idle))

    def stop(self) -> None:
        """End `run()` after the handlers at work. Any thread, and a signal handler, may call it."""
        for serving in self._servings:
            serving.stop()

    def _add(self, topic: str, route: Route) -> None:
        check_text("topic", topic)
        if topic in self._routes:
            raise ValidationError("topic", topic, "handled by one handler only")
        self._routes[topic] = route

    def _serve(self, serve: Callable[[Serving], Any]) -> list[Any]:
        """Serve every store, each on a thread of its own if there are several."""
        try:
            if len(self._servings) == 1:
                return [serve(self._servings[0])]
            with ThreadPoolExecutor(len(self._servings)) as threads:
                return list(threads.map(self._or_stop_all(serve), self._servings))
        finally:
            self._loop.close()

    def _or_stop_all(self, serve: Callable[[Serving], Any]) -> Callable[[Serving], Any]:
        def serve_or_stop(serving: Serving) -> Any:
            try:
                return serve(serving)
            except BaseException:
                self.stop()
                raise

        return serve_or_stop


def _blocking(store: RunsTransactions) -> RunsTransactions:
    """Return the store, if its calls are blocking: handlers may be async, the dispatcher is not."""
    run = getattr(store, "run", None)
    if not callable(run) or inspect.iscoroutinefunction(run):
        raise ValidationError("store", store, "a Store, or a provider of Stores")
    return store
