"""A consumer: reads a category, calls a handler for each message, and stores its position."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from penstock.consumers import parked
from penstock.consumers.handler_calls_async import AsyncHandlerCalls, AsyncParkedRetries, logger
from penstock.consumers.handlers import (
    Function,
    Handler,
    Middleware,
    Routes,
    check_types,
    checked_middleware,
)
from penstock.consumers.positions import Positions, StoredPosition, positions_for
from penstock.consumers.progress import Progress, Subscription
from penstock.database.waiters import of_category, of_save
from penstock.errors import (
    DecodingError,
    LogChanged,
    PositionConflict,
    UnavailableError,
    ValidationError,
    WrongExpectedVersion,
)
from penstock.log.runs_async import AsyncRuns, AsyncRunsTransactions
from penstock.log.waiter_async import AsyncWaiter
from penstock.loops.concurrency_async import (
    IS_ASYNC,
    StopEvent,
    check_handler,
    is_coroutine_function,
    stopping_on_signals,
)
from penstock.loops.durations import Duration
from penstock.loops.failure_policy import FailurePolicy, checked_policy
from penstock.loops.outage import Outage
from penstock.message import RecordedMessage, check_text, names


class AsyncConsumer:
    """Reads a category and calls a handler for each message, at least once and in order.

    Register handlers with `@consumer.handler("Type")`, or pass `handlers`: a mapping by type, or an
    object with methods marked `@handles("Type")`. Then `await consumer.run()`. It ends on `stop()`,
    SIGTERM or SIGINT, after the current message. The next run resumes from the stored position,
    which is kept in `positions`: "stream" (the default), "table" or "hybrid". It is saved every
    `position_update_interval` messages, when no message came for `idle_save_delay` (seconds or a
    timedelta), and at the end.

    With `transactional=True` a handler is called with the message and a transaction. What it writes
    there is committed together with the position: exactly once within the database.

    `on_failure` is a `FailurePolicy`. `start` ("beginning", "end" or a global position) is for a
    consumer that has no position yet. `run()` waits for a database that cannot be reached.
    """

    def __init__(
        self,
        store: AsyncRunsTransactions,
        category: str,
        consumer_id: str,
        *,
        handlers: object = None,
        positions: str | Positions = "stream",
        start: int | str = "beginning",
        batch_size: int = 100,
        polling_interval_ms: int = 100,
        longest_polling_interval_ms: int = 1000,
        position_update_interval: int = 100,
        idle_save_delay: Duration = 1.0,
        consumer_group_member: int | None = None,
        consumer_group_size: int | None = None,
        correlation: str | None = None,
        condition: str | None = None,
        on_failure: FailurePolicy | None = None,
        unknown: str = "ignore",
        transactional: bool = False,
        middleware: Sequence[Middleware] = (),
    ) -> None:
        self._policy = checked_policy(on_failure, FailurePolicy.stop())
        _check_store(store, transactional, self._policy)
        self._store = store
        self._transactional = transactional
        self._has_retried = False
        self.consumer_id = check_text("consumer_id", consumer_id)
        self._subscription = Subscription(
            store.context,
            category,
            correlation,
            consumer_group_member,
            consumer_group_size,
            condition,
        )
        self.category = category
        self._progress = Progress(
            consumer_id,
            self._subscription,
            positions_for(positions, category, consumer_id),
            start=start,
            batch_size=batch_size,
            polling_interval_ms=polling_interval_ms,
            longest_polling_interval_ms=longest_polling_interval_ms,
            position_update_interval=position_update_interval,
            idle_save_delay=idle_save_delay,
        )
        self._routes = Routes(handlers, unknown)
        #: the stream that holds the messages it could not handle
        self.parked_stream = parked.parked_stream(category, consumer_id)
        self._stopping = StopEvent()
        self._calls = AsyncHandlerCalls(
            consumer_id, checked_middleware(middleware, IS_ASYNC), self._policy, self._stopping
        )
        self._retries = AsyncParkedRetries(
            store, self.parked_stream, self._routes, self._calls, transactional
        )
        #: woken for by who waits until the position is saved
        self._asked_to_save = of_save(category, consumer_id)
        parked_category = names.category(self.parked_stream)
        self._waiter = AsyncWaiter(
            store, [of_category(category), of_category(parked_category), self._asked_to_save]
        )
        self._outage = Outage(f"consumer {consumer_id}", logger)

    def handler(self, *types: str) -> Callable[[Function], Function]:
        """Decorate the handler of these message types, or of all others if none is named."""
        check_types(types, "handler")

        def register(function: Function) -> Function:
            self._routes.add(function, *types)
            return function

        return register

    @property
    def position(self) -> int:
        """The global position of the last message that is done with; 0 before the first."""
        return self._progress.position

    @property
    def missed(self) -> int:
        """At most how many messages retention removed before this consumer could read them."""
        return self._progress.missed

    async def run(self) -> None:
        """Handle messages as they come, until `stop()`, SIGTERM or SIGINT."""
        self._routes.check(check_handler)
        with stopping_on_signals(self.stop), self._waiter:
            try:
                while not self._stopping.is_set():
                    await self._step()
            finally:
                with suppress(UnavailableError):  # what is not saved is handled again
                    await self._save()

    async def run_once(self) -> int:
        """Handle one page of messages, save the position, and return how many are done with."""
        self._routes.check(check_handler)
        try:
            return await self._handle_page()
        finally:
            await self._save()

    async def run_until_idle(self) -> int:
        """Handle all messages that are there now, save the position, and return how many are done.

        Also retries the parked messages for which a retry was requested. Ends earlier on `stop()`,
        SIGTERM or SIGINT.
        """
        self._routes.check(check_handler)
        with stopping_on_signals(self.stop):
            try:
                return await self._handle_pages() + await self._retries.run()
            finally:
                await self._save()

    def stop(self) -> None:
        """End `run()` and `run_until_idle()` after the current message. A handler may call it."""
        self._stopping.set()
        self._waiter.stop()

    async def _step(self) -> None:
        """Handle a page, and wait until there may be another one."""
        self._waiter.looks()
        try:
            length = await self._handle_page()
            if not self._progress.has_more:
                await self._use_idle_time()
            self._outage.is_over()
            pause = self._progress.pause(length)
            if pause:
                await self._waiter.sleep(
                    pause, due=self._idle_work_due(), found=length > 0, reached=self.position
                )
        except UnavailableError as error:
            if not error.retryable:  # the password is wrong
                raise
            self._outage.goes_on(error)
            self._progress.stored = None  # a save may or may not have been committed
            self._retries.version = None
            await self._stopping.wait_for(self._progress.longest_pause)

    async def _use_idle_time(self) -> None:
        if self._progress.idle_save_is_due or self._asked_to_save in self._waiter.notified_of:
            await self._save()
        if self._retries.is_due:
            await self._retries.run()
            self._has_retried = True

    def _idle_work_due(self) -> float | None:
        """Return when there is something to do without a new message, by the monotonic clock."""
        has_retried, self._has_retried = self._has_retried, False
        due = [self._progress.idle_save_due] if self._progress.is_unsaved else []
        if self._policy.parks and not has_retried:  # one may have been requested
            due.append(self._retries.next_look)
        return min(due, default=None)

    async def _handle_pages(self) -> int:
        """Handle pages up to the head of the category as it is now."""
        head = None
        if self._store.context.edition.has_watermark:  # a genuine Message DB cannot read the head
            head = await self._store.run(self._subscription.head())
        handled = await self._handle_page(head)
        while self._progress.has_more and not self._stopping.is_set():
            handled += await self._handle_page(head)
        return handled

    async def _handle_page(self, until: int | None = None) -> int:
        """Handle the next page, and return how many of its messages are done with."""
        if self._progress.stored is None:
            await self._load_position()
        if until is None and self._subscription.is_filtered:
            until = await self._store.run(self._subscription.head())
        try:
            page = await self._read_page(until)
        except LogChanged as error:
            logger.warning("consumer %s starts again: %s", self.consumer_id, error)
            self._progress.restart()
            self._retries.version = None
            return 0
        self._progress.fetched(page)
        if (removed := self._progress.removed_before(page)) is not None:
            self._progress.note_missed(await self._store.run(removed))
        for count, message in enumerate(page):
            if self._stopping.is_set() or not await self._handle(message):
                return count
            if self._progress.save_is_due:
                await self._save()
        self._progress.read_until(until)
        return len(page)

    async def _read_page(self, until: int | None) -> list[RecordedMessage]:
        """Read the next page; up to a message that cannot be decoded, one message at a time."""
        try:
            return await self._store.run(self._progress.next_page(until))
        except DecodingError as error:
            if not self._progress.cannot_decode(error.global_position):
                raise
            return await self._store.run(self._progress.next_page(until))

    async def _handle(self, message: RecordedMessage) -> bool:
        """Handle, park or ignore a message. False if `stop()` came before it was done with."""
        if self._subscription.is_own_bookkeeping(message):
            self._progress.position = message.global_position  # which is not worth a save
            return True
        handler = self._routes.handler_of(message)
        if handler is None:
            self._progress.done(message.global_position)
            return True
        error = await self._calls.attempt(lambda: self._call(handler, message), message)
        if error is None:
            return True
        if self._stopping.is_set():
            return False
        if not self._policy.parks:
            raise self._calls.failed(message, error) from error
        attempts = self._policy.attempts
        async with self._saving_with(message) as transaction:
            await transaction.run(
                parked.park(self._store.context, self.parked_stream, message, error, attempts)
            )
        return True

    async def _call(self, handler: Handler, message: RecordedMessage) -> None:
        if self._transactional:
            async with self._saving_with(message) as transaction:
                await self._calls.run(handler, message, transaction)
        else:
            await self._calls.run(handler, message)
            self._progress.done(message.global_position)

    async def _load_position(self) -> None:
        stored = await self._store.run(self._progress.positions.load(self._store.context))
        end = None
        if not stored.exists and self._progress.start == "end":
            end = await self._store.run(self._subscription.head())
        self._progress.loaded(stored, end)
        await self._save(durable=True)  # a later start would choose another position

    async def _save(self, durable: bool = False) -> None:
        """Save the position, if it has moved."""
        if self._progress.is_unsaved:
            with self._progress.saving():
                position = self._progress.position
                self._progress.saved(await self._run_save(self._store, position, durable))

    @asynccontextmanager
    async def _saving_with(self, message: RecordedMessage) -> AsyncIterator[Any]:
        """Give a transaction that also saves the position after the message."""
        with self._progress.saving():
            async with self._store.transaction() as transaction:
                yield transaction
                saved = await self._run_save(transaction, message.global_position, durable=True)
            self._progress.saved(saved)

    async def _run_save(self, runs: AsyncRuns, position: int, durable: bool) -> StoredPosition:
        try:
            return await runs.run(self._progress.save(position, durable))
        except WrongExpectedVersion as error:
            name = f"{self.category}-{self.consumer_id}"
            raise PositionConflict(name, self._progress.last_saved, None) from error


def _check_store(store: object, transactional: object, policy: FailurePolicy) -> None:
    if not isinstance(transactional, bool):
        raise ValidationError("transactional", transactional, "True or False")
    run = getattr(store, "run", None)
    if not hasattr(store, "context") or is_coroutine_function(run) != IS_ASYNC:
        raise ValidationError("store", store, "a store that penstock.connect_async() returned")
    if (transactional or policy.parks) and not hasattr(store, "transaction"):
        raise ValidationError("store", store, "a store, which can begin a transaction")
