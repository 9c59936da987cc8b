"""A consumer: reads a category, calls a handler for each message, and stores its position."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

from penstock.consumers import parked
from penstock.consumers.handlers import Handler, refuse_generator, wrapped
from penstock.consumers.parked import ParkedMessage
from penstock.consumers.positions import StoredPosition
from penstock.consumers.progress import Progress
from penstock.errors import (
    AuthenticationFailed,
    DatabaseUnreachable,
    DecodingError,
    LogChanged,
    PoolExhausted,
    PositionConflict,
    UnavailableError,
    WrongExpectedVersion,
)
from penstock.log import read
from penstock.log.runs_async import AsyncRuns, AsyncRunsTransactions
from penstock.loops.concurrency_async import IS_ASYNC, StopEvent, run_handler, stopping_on_signals
from penstock.message import RecordedMessage


class AsyncConsumer(Progress):
    """Reads a category and calls a handler for each message, at least once and in order.

    Register handlers with `@consumer.handler("Type")`, or pass `handlers`: a mapping by type, or an
    object with methods marked `@handles("Type")`; plain functions will do as well as async ones.
    Then `await consumer.run()`; it ends on SIGTERM, SIGINT or `stop()`, after the message in hand.
    It resumes from its stored position, which is kept in `positions`: "stream" (the default),
    "table" or "hybrid".

    With `transactional=True` a handler is called with the message and a transaction; what it writes
    there is committed together with the position: exactly once within the database.

    `on_failure` is a `FailurePolicy`. `start` ("beginning", "end" or a global position) is for a
    consumer that has no position yet. A database that goes away is waited for.
    """

    _store: AsyncRunsTransactions
    _new_event = StopEvent
    _awaits = IS_ASYNC

    async def run(self) -> None:
        """Handle messages as they come, until `stop()` or a signal."""
        self._routes.check(self._awaits)
        with stopping_on_signals(self.stop):
            try:
                while not self._stopping.is_set():
                    await self._stopping.wait_for(await self._step())
            finally:
                with suppress(UnavailableError):  # then what was not saved comes again
                    await self._save_progress()

    async def run_once(self) -> int:
        """Handle one page of messages, save the position, and return how many are done with."""
        self._routes.check(self._awaits)
        try:
            return await self._handle_page()
        finally:
            await self._save_progress()

    def stop(self) -> None:
        """End `run()` after the message in hand. Call it from the event loop."""
        self._stopping.set()

    async def _step(self) -> float:
        """Handle a page and return how long to wait before the next."""
        try:
            length = await self._handle_page()
            if not self._has_more:
                await self._be_idle()
            self._outage.is_over()
            return self._idle_pause(length)
        except AuthenticationFailed:
            raise
        except UnavailableError as error:
            return self._wait_for_database(error)

    async def _handle_page(self) -> int:
        if self._stored is None:
            await self._load_position()
        head = await self._store.run(self._head()) if self._sparse else 0
        try:
            page = await self._read_page(head)
        except LogChanged as error:
            self._start_again(error)
            return 0
        self._got(page)
        if self._can_have_missed(page):
            self._note_missed(await self._store.run(self._removed(page)))
        for count, message in enumerate(page):
            if self._stopping.is_set() or not await self._handle(message):
                return count
            if self._save_is_due():
                await self._save_progress()
        if head > self._position and not self._has_more:
            self._passed(head)
        return len(page)

    async def _read_page(self, head: int) -> list[RecordedMessage]:
        """Read on; one by one where a message cannot be decoded, to come as far as possible."""
        try:
            return await self._store.run(self._next_page(head))
        except DecodingError as error:
            if self._page_size == 1:
                raise
            self._undecodable = error.global_position
            return await self._store.run(self._next_page(head))

    async def _handle(self, message: RecordedMessage) -> bool:
        """Handle, park or pass over a message. False if `stop()` came before it was done with."""
        if self._is_whole_log and self._is_bookkeeping(message):
            self._position = message.global_position
            return True
        handler = self._handler_of(message)
        if handler is None:
            self._passed(message.global_position)
            return True
        error = await self._attempt(lambda: self._call(handler, message), message)
        if error is None:
            return True
        if self._stopping.is_set():
            return False
        if not self._policy.parks:
            raise self._failed(message, error) from error
        with self._saving():
            async with self._store.transaction() as transaction:
                await transaction.run(self._park(message, error))
                saved = await self._run_save(transaction, message.global_position)
            self._saved(saved)
        return True

    async def _attempt(
        self, call: Callable[[], Awaitable[None]], message: RecordedMessage
    ) -> Exception | None:
        """Call as often as the policy allows. Return the last error if every call failed."""
        for attempt in range(1, self._policy.attempts + 1):
            try:
                await call()
                return None
            except (DatabaseUnreachable, PoolExhausted, PositionConflict):
                raise  # not the handler's fault
            except Exception as error:
                failure = error
                self._log_failure(message, attempt, error)
            if attempt < self._policy.attempts:
                await self._stopping.wait_for(self._policy.pause(attempt))
            if self._stopping.is_set():
                break
        return failure

    async def _call(self, handler: Handler, message: RecordedMessage) -> None:
        if not self._transactional:
            await self._run_handler(handler, message)
            self._passed(message.global_position)
            return
        with self._saving():
            async with self._store.transaction() as transaction:
                await self._run_handler(handler, message, transaction)
                saved = await self._run_save(transaction, message.global_position)
            self._saved(saved)

    async def _load_position(self) -> None:
        stored = await self._store.run(self._load())
        self._loaded(
            stored, await self._store.run(self._head()) if self._starts_at_end(stored) else 0
        )
        await self._save_progress(durable=True)  # where it begins must not be forgotten

    async def _save_progress(self, durable: bool = False) -> None:
        if self._unsaved and self._stored is not None:
            with self._saving():
                self._saved(await self._run_save(self._store, self._position, durable))

    async def _run_save(
        self, runner: AsyncRuns, position: int, durable: bool = True
    ) -> StoredPosition:
        try:
            return await runner.run(self._save(position, durable))
        except WrongExpectedVersion as error:
            raise self._conflict() from error

    async def _be_idle(self) -> None:
        if self._idle_save_is_due():
            await self._save_progress()
        if self._parked_look_is_due() and self._parked_changed(
            await self._store.run(self._parked_end())
        ):
            for waiting in parked.fold([one async for one in self._parked_story()]).values():
                if waiting.retry_requested and not self._stopping.is_set():
                    await self._retry(waiting)

    async def _retry(self, waiting: ParkedMessage) -> None:
        """Handle a parked message again; park it anew if that fails."""
        message = waiting.message
        handler = self._handler_of(message)
        if handler is None:
            return
        error = await self._attempt(lambda: self._call_parked(handler, message), message)
        if error is not None and not self._stopping.is_set():
            await self._store.run(self._park(message, error, waiting.attempts))

    async def _call_parked(self, handler: Handler, message: RecordedMessage) -> None:
        handled = parked.mark(self.context, self.parked_stream, "Handled", message)
        if not self._transactional:
            await self._run_handler(handler, message)
            await self._store.run(handled)
            return
        async with self._store.transaction() as transaction:
            await self._run_handler(handler, message, transaction)
            await transaction.run(handled)

    async def _parked_story(self) -> AsyncIterator[RecordedMessage]:
        position = 0
        while page := await self._store.run(
            read.get_stream_messages(self.context, self.parked_stream, position)
        ):
            for one in page:
                yield one
            position = page[-1].position + 1

    async def _run_handler(
        self, handler: Handler, message: RecordedMessage, *transaction: Any
    ) -> None:
        """Call a handler inside the middleware."""

        async def call(message: RecordedMessage) -> None:
            refuse_generator(await run_handler(handler, message, *transaction))

        await run_handler(wrapped(self._middleware, call), message)
