"""A consumer for blocking code: read a category at your own pace, and lose nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from typing import Any, Protocol, TypeVar

from penstock.consumers import parked
from penstock.consumers.handlers import Handler, done, wrapped
from penstock.consumers.parked import ParkedMessage
from penstock.consumers.positions import StoredPosition
from penstock.consumers.progress import Progress
from penstock.database.operation import Operation
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
from penstock.log.context import LogContext
from penstock.loops.signals import StopEvent, stopping_on_signals
from penstock.message import RecordedMessage

Result = TypeVar("Result")


class Runs(Protocol):
    """What can run an operation: a store or a transaction."""

    context: LogContext

    def run(self, operation: Operation[Result]) -> Result:
        """Run an operation and return its result."""


class RunsTransactions(Runs, Protocol):
    """What a consumer needs of a store."""

    def transaction(self) -> AbstractContextManager[Any]:
        """Return a transaction for a `with` block."""


class Consumer(Progress):
    """Reads a category and calls a handler for each message, at least once and in order.

    Register handlers with `@consumer.handler("Type")`, or pass `handlers`: a mapping by type, or an
    object with methods marked `@handles("Type")`. Then `run()`; it ends on SIGTERM, SIGINT or
    `stop()`, after the message in hand. It resumes from its stored position, which is kept in
    `positions`: "stream" (the default), "table" or "hybrid".

    With `transactional=True` a handler is called with the message and a transaction; what it writes
    there is committed together with the position: exactly once within the database.

    `on_failure` is a `FailurePolicy`. `start` ("beginning", "end" or a global position) is for a
    consumer that has no position yet. A database that goes away is waited for.
    """

    _store: RunsTransactions
    _new_event = StopEvent

    def run(self) -> None:
        """Handle messages as they come, until `stop()` or a signal."""
        self._routes.check(self._is_async)
        with stopping_on_signals(self.stop):
            try:
                while not self._stopping.is_set():
                    self._stopping.wait(self._step())
            finally:
                with suppress(UnavailableError):  # then what was not saved comes again
                    self._save_progress()

    def run_once(self) -> int:
        """Handle one page of messages, save the position, and return how many are done with."""
        self._routes.check(self._is_async)
        try:
            return self._handle_page()
        finally:
            self._save_progress()

    def stop(self) -> None:
        """End `run()` after the message in hand. Any thread, and a signal handler, may call it."""
        self._stopping.set()

    def _step(self) -> float:
        """Handle a page and return how long to wait before the next."""
        try:
            length = self._handle_page()
            if not self._has_more:
                self._be_idle()
            self._outage.is_over()
            return self._idle_pause(length)
        except AuthenticationFailed:
            raise
        except UnavailableError as error:
            return self._wait_for_database(error)

    def _handle_page(self) -> int:
        if self._stored is None:
            self._load_position()
        head = self._store.run(self._head()) if self._sparse else 0
        try:
            page = self._read_page(head)
        except LogChanged as error:
            self._start_again(error)
            return 0
        self._got(page)
        if self._can_have_missed(page):
            self._note_missed(self._store.run(self._removed(page)))
        for count, message in enumerate(page):
            if self._stopping.is_set() or not self._handle(message):
                return count
            if self._save_is_due():
                self._save_progress()
        if head > self._position and not self._has_more:
            self._passed(head)
        return len(page)

    def _read_page(self, head: int) -> list[RecordedMessage]:
        """Read on; one by one where a message cannot be decoded, to come as far as possible."""
        try:
            return self._store.run(self._next_page(head))
        except DecodingError as error:
            if self._page_size == 1:
                raise
            self._undecodable = error.global_position
            return self._store.run(self._next_page(head))

    def _handle(self, message: RecordedMessage) -> bool:
        """Handle, park or pass over a message. False if `stop()` came before it was done with."""
        if self._is_whole_log and self._is_bookkeeping(message):
            self._position = message.global_position
            return True
        handler = self._handler_of(message)
        if handler is None:
            self._passed(message.global_position)
            return True
        error = self._attempt(lambda: self._call(handler, message), message)
        if error is None:
            return True
        if self._stopping.is_set():
            return False
        if not self._policy.parks:
            raise self._failed(message, error) from error
        with self._saving():
            with self._store.transaction() as transaction:
                transaction.run(self._park(message, error))
                saved = self._run_save(transaction, message.global_position)
            self._saved(saved)
        return True

    def _attempt(self, call: Callable[[], None], message: RecordedMessage) -> Exception | None:
        """Call as often as the policy allows. Return the last error if every call failed."""
        for attempt in range(1, self._policy.attempts + 1):
            try:
                call()
                return None
            except (DatabaseUnreachable, PoolExhausted, PositionConflict):
                raise  # not the handler's fault
            except Exception as error:
                failure = error
                self._log_failure(message, attempt, error)
            if attempt < self._policy.attempts:
                self._stopping.wait(self._policy.pause(attempt))
            if self._stopping.is_set():
                break
        return failure

    def _call(self, handler: Handler, message: RecordedMessage) -> None:
        if not self._transactional:
            call = wrapped(self._middleware, handler) if self._middleware else handler
            done(call(message))
            self._passed(message.global_position)
            return
        with self._saving():
            with self._store.transaction() as transaction:
                done(wrapped(self._middleware, lambda one: handler(one, transaction))(message))
                saved = self._run_save(transaction, message.global_position)
            self._saved(saved)

    def _load_position(self) -> None:
        stored = self._store.run(self._load())
        self._loaded(stored, self._store.run(self._head()) if self._starts_at_end(stored) else 0)
        self._save_progress(durable=True)  # where it begins must not be forgotten

    def _save_progress(self, durable: bool = False) -> None:
        if self._unsaved and self._stored is not None:
            with self._saving():
                self._saved(self._run_save(self._store, self._position, durable))

    def _run_save(self, runner: Runs, position: int, durable: bool = True) -> StoredPosition:
        try:
            return runner.run(self._save(position, durable))
        except WrongExpectedVersion as error:
            raise self._conflict() from error

    def _be_idle(self) -> None:
        if self._idle_save_is_due():
            self._save_progress()
        if self._parked_look_is_due() and self._parked_changed(self._store.run(self._parked_end())):
            for waiting in parked.fold(self._parked_story()).values():
                if waiting.retry_requested and not self._stopping.is_set():
                    self._retry(waiting)

    def _retry(self, waiting: ParkedMessage) -> None:
        """Handle a parked message again; park it anew if that fails."""
        message = waiting.message
        handler = self._handler_of(message)
        if handler is None:
            return
        error = self._attempt(lambda: self._call_parked(handler, message), message)
        if error is not None and not self._stopping.is_set():
            self._store.run(self._park(message, error, waiting.attempts))

    def _call_parked(self, handler: Handler, message: RecordedMessage) -> None:
        handled = parked.mark(self.context, self.parked_stream, "Handled", message)
        if not self._transactional:
            done(wrapped(self._middleware, handler)(message))
            self._store.run(handled)
            return
        with self._store.transaction() as transaction:
            done(wrapped(self._middleware, lambda one: handler(one, transaction))(message))
            transaction.run(handled)

    def _parked_story(self) -> Iterator[RecordedMessage]:
        position = 0
        while page := self._store.run(
            read.get_stream_messages(self.context, self.parked_stream, position)
        ):
            yield from page
            position = page[-1].position + 1
