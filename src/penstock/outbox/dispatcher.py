"""A dispatcher: takes due messages out of the outbox and calls their handlers.

The promise: each message is handled at least once. It is acknowledged after its handler returned,
in batches; a message of a dispatcher that died comes again when its lease ends. A handler that
raises is tried again, with growing pauses, and then the message fails with its last error kept. A
message without a handler goes back, for another dispatcher that may have one.

One round is: settle what handlers have finished, extend the leases of what is still at work, claim
as much as there is room for, and hand it to the threads.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar
from uuid import UUID

from penstock.database.operation import Operation
from penstock.errors import (
    DatabaseUnreachable,
    JoinNotFound,
    PermanentFailure,
    StaleLease,
    ValidationError,
    first_line,
)
from penstock.failure import FailurePolicy
from penstock.log import write
from penstock.log.context import LogContext, is_whole
from penstock.message import check_text
from penstock.outbox import joins, messages
from penstock.outbox.messages import ClaimedMessage, Floor
from penstock.outbox.provider import StoreProvider
from penstock.process import stopping_on_signals, this_process

Result = TypeVar("Result")
Function = TypeVar("Function", bound=Callable[..., Any])
logger = logging.getLogger("penstock")

#: how long a message without a handler waits before it is claimed again
NO_HANDLER_DELAY = 5.0


class RunsTransactions(Protocol):
    """What a dispatcher needs of a store."""

    context: LogContext

    def run(self, operation: Operation[Result]) -> Result:
        """Run an operation and return its result."""

    def transaction(self) -> AbstractContextManager[Any]:
        """Return a transaction for a `with` block."""


@dataclass(frozen=True, slots=True)
class Route:
    """The handler of a topic and what to do when it fails."""

    handle: Callable[[ClaimedMessage, RunsTransactions], bool]
    policy: FailurePolicy


@dataclass(slots=True)
class Served:
    """A store that is served: how far along it is, and what of it is at work."""

    store: RunsTransactions
    floor: Floor = field(default_factory=Floor)
    at_work: dict[UUID, ClaimedMessage] = field(default_factory=dict)
    next_extension: float = 0.0


class Dispatcher:
    """Calls handlers for the messages of one store, or of all the stores of a provider.

    Register handlers with `@dispatcher.handler("topic")`, plain or async; each gets the message.
    `run()` ends on SIGTERM, SIGINT or `stop()`, after the handlers at work. Run as many dispatchers
    as you like. `concurrency` is the number of handlers at work at a time.
    """

    def __init__(
        self,
        store: RunsTransactions | StoreProvider[RunsTransactions],
        *,
        concurrency: int = 10,
        batch_size: int = 100,
        lease: float = 30.0,
        owner: str | None = None,
        on_failure: FailurePolicy | None = None,
        polling_interval_ms: int = 100,
    ) -> None:
        for name, value in (("concurrency", concurrency), ("batch_size", batch_size)):
            if not is_whole(value) or value < 1:
                raise ValidationError(name, value, "at least 1")
        messages.as_interval("lease", lease)
        stores = store.stores() if hasattr(store, "stores") else [store]
        self._served = [Served(one) for one in stores]
        self._concurrency = concurrency
        self._batch_size = batch_size
        self._lease = lease
        self.owner = owner or this_process()
        self._policy = on_failure or FailurePolicy.retry(
            attempts=10, delay=1.0, longest_delay=300.0
        )
        self._polling_interval = polling_interval_ms / 1000
        self._routes: dict[str, Route] = {joins.WAIT_TOPIC: Route(_resolve_join, self._policy)}
        self._finished: queue.SimpleQueue[tuple[Served, ClaimedMessage, BaseException | None]]
        self._finished = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def handler(
        self, topic: str, *, on_failure: FailurePolicy | None = None
    ) -> Callable[[Function], Function]:
        """Decorate the handler of a topic. It gets the message; async functions are awaited."""

        def register(function: Function) -> Function:
            def handle(message: ClaimedMessage, store: RunsTransactions) -> bool:
                result = function(message)
                if inspect.isawaitable(result):
                    self._await(result)
                return False

            self._add(topic, Route(handle, on_failure or self._policy))
            return function

        return register

    def publish(
        self, topic: str, to_stream: str | Callable[[ClaimedMessage], str], type: str | None = None
    ) -> None:
        """Handle a topic by writing its messages to a stream of the log, each exactly once.

        The payload, a JSON object, becomes the data; the outbox message's id becomes the message's;
        `type` is the topic unless given. Writing and acknowledging are one transaction.
        """

        def handle(message: ClaimedMessage, store: RunsTransactions) -> bool:
            stream_name = to_stream if isinstance(to_stream, str) else to_stream(message)
            if not isinstance(message.payload, dict):
                raise PermanentFailure(f"a payload to publish must be a JSON object: {message.id}")
            metadata = (
                {"correlation_id": message.correlation_id} if message.correlation_id else None
            )
            with store.transaction() as transaction:
                transaction.run(
                    write.write_message(
                        store.context,
                        stream_name,
                        type or topic,
                        message.payload,
                        metadata,
                        id=message.id,
                    )
                )
                stale = transaction.run(messages.finish([message.id], message.token, "done"))
                if stale:
                    raise StaleLease((str(message.id),))
            return True

        self._add(topic, Route(handle, self._policy))

    def run(self) -> None:
        """Dispatch messages as they become due, until `stop()`, SIGTERM or SIGINT."""
        with stopping_on_signals(self.stop), ThreadPoolExecutor(self._concurrency) as threads:
            while not self._stopping.is_set():
                if not self._round(threads):
                    self._wait_for_work()
            self._drain()

    def run_until_idle(self) -> int:
        """Dispatch until nothing is due, and return how many messages were handled."""
        handled = 0
        with ThreadPoolExecutor(self._concurrency) as threads:
            while True:
                claimed = self._round(threads)
                handled += claimed
                if not claimed and not any(served.at_work for served in self._served):
                    return handled
                if not claimed:
                    self._settle(wait=True)

    def stop(self) -> None:
        """End `run()` after the handlers at work. Any thread, and a signal handler, may call it."""
        self._stopping.set()

    def _add(self, topic: str, route: Route) -> None:
        check_text("topic", topic)
        if topic in self._routes:
            raise ValidationError("topic", topic, "handled by one handler only")
        self._routes[topic] = route

    def _round(self, threads: ThreadPoolExecutor) -> int:
        """Settle, extend and claim, for each store. Return how many messages were claimed."""
        self._settle(wait=False)
        claimed = 0
        for served in self._served:
            try:
                self._extend(served)
                claimed += self._claim(served, threads)
            except DatabaseUnreachable as error:
                logger.warning("dispatcher %s waits for the database: %s", self.owner, error)
        return claimed

    def _claim(self, served: Served, threads: ThreadPoolExecutor) -> int:
        room = self._batch_size - sum(len(one.at_work) for one in self._served)
        if room < max(1, self._batch_size // 4):
            return 0
        store = served.store
        claimed = store.run(
            messages.claim(store.context, self.owner, room, self._lease, served.floor.take())
        )
        served.floor.note(claimed)
        if claimed and not served.at_work:
            served.next_extension = time.monotonic() + self._lease / 3
        for message in claimed:
            served.at_work[message.id] = message
            threads.submit(self._work, served, message)
        return len(claimed)

    def _work(self, served: Served, message: ClaimedMessage) -> None:
        """Handle one message, on a thread, and report the outcome to the dispatcher's own."""
        outcome: BaseException | None = None
        try:
            route = self._routes.get(message.topic)
            if route is None:
                outcome = _NoHandler(message.topic)
            elif route.handle(message, served.store):
                outcome = _Settled()
        except BaseException as error:
            outcome = error
        self._finished.put((served, message, outcome))

    def _settle(self, *, wait: bool) -> None:
        """Acknowledge, give back or fail what handlers are done with."""
        done: dict[int, tuple[Served, list[ClaimedMessage]]] = {}
        for served, message, outcome in self._outcomes(wait):
            served.at_work.pop(message.id, None)
            if outcome is None:
                done.setdefault(id(served), (served, []))[1].append(message)
            elif not isinstance(outcome, _Settled):
                self._try(served, lambda m=message, o=outcome, s=served: self._fail(s, m, o))  # type: ignore[misc]
        for served, several in done.values():
            self._try(served, lambda s=served, d=several: self._ack(s, d))  # type: ignore[misc]

    def _outcomes(self, wait: bool) -> list[tuple[Served, ClaimedMessage, BaseException | None]]:
        found = []
        if wait:
            found.append(self._finished.get())
        while True:
            try:
                found.append(self._finished.get_nowait())
            except queue.Empty:
                return found

    def _ack(self, served: Served, several: Sequence[ClaimedMessage]) -> None:
        tokens: dict[UUID, list[UUID]] = {}
        for message in several:
            tokens.setdefault(message.token, []).append(message.id)
        for token, ids in tokens.items():
            stale = served.store.run(messages.finish(ids, token, "done"))
            if stale:
                logger.warning("dispatcher %s: leases had ended of %s", self.owner, stale)

    def _fail(self, served: Served, message: ClaimedMessage, error: BaseException) -> None:
        reason = f"{type(error).__name__}: {first_line(error)}"
        store, held = served.store, ([message.id], message.token)
        if isinstance(error, StaleLease):
            logger.warning("dispatcher %s: %s", self.owner, error)
        elif isinstance(error, _NoHandler):
            store.run(messages.abandon(*held, NO_HANDLER_DELAY, str(error)))
        elif isinstance(error, DatabaseUnreachable):
            store.run(messages.abandon(*held, 0.0, reason))
        elif isinstance(error, PermanentFailure | JoinNotFound):
            store.run(messages.finish(*held, "failed", reason))
        else:
            self._try_again(served, message, reason)

    def _try_again(self, served: Served, message: ClaimedMessage, reason: str) -> None:
        policy = self._routes[message.topic].policy
        held = ([message.id], message.token)
        logger.warning(
            "dispatcher %s: attempt %d of %d on %s %s failed: %s",
            self.owner,
            message.attempts,
            policy.attempts,
            message.topic,
            message.id,
            reason,
        )
        if message.attempts >= policy.attempts:
            served.store.run(messages.finish(*held, "failed", reason))
        else:
            served.store.run(messages.abandon(*held, policy.pause(message.attempts), reason))

    def _extend(self, served: Served) -> None:
        """Keep the leases of messages whose handlers are still at work."""
        if not served.at_work or time.monotonic() < served.next_extension:
            return
        served.next_extension = time.monotonic() + self._lease / 3
        tokens: dict[UUID, list[UUID]] = {}
        for message in served.at_work.values():
            tokens.setdefault(message.token, []).append(message.id)
        for token, ids in tokens.items():
            served.store.run(messages.extend(ids, token, self._lease))

    def _try(self, served: Served, settle: Callable[[], None]) -> None:
        try:
            settle()
        except DatabaseUnreachable as error:  # then the lease ends and the message comes again
            logger.warning("dispatcher %s lost the database: %s", self.owner, error)

    def _wait_for_work(self) -> None:
        """Wait for a handler to finish or, with none at work, until it is time to look again."""
        if any(served.at_work for served in self._served):
            try:
                self._finished.put(self._finished.get(timeout=self._polling_interval))
            except queue.Empty:
                return
        else:
            self._stopping.wait(self._polling_interval)

    def _drain(self) -> None:
        while any(served.at_work for served in self._served):
            self._settle(wait=True)
            for served in self._served:
                self._try(served, lambda s=served: self._extend(s))  # type: ignore[misc]

    def _await(self, awaitable: Any) -> None:
        """Run an async handler on an event loop of the dispatcher's own, shared by all of them."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(
                target=self._loop.run_forever, name="penstock dispatcher", daemon=True
            ).start()
        asyncio.run_coroutine_threadsafe(_awaited(awaitable), self._loop).result()


class _Settled(Exception):
    """The handler acknowledged the message itself."""


class _NoHandler(Exception):
    """This dispatcher has no handler for the topic."""

    def __str__(self) -> str:
        return f"no handler for topic {self.args[0]} in the dispatcher that claimed it"


async def _awaited(awaitable: Any) -> None:
    await awaitable


def _resolve_join(message: ClaimedMessage, store: RunsTransactions) -> bool:
    """Handle join.wait: resolve the join, or go back to sleep until its last step."""
    store.run(joins.resolve(message))
    return True
