"""What a consumer knows and decides, apart from doing it: shared by blocking and async consumers.

The promise: at least once. A position is saved only after every message up to it was handled,
parked or passed over; so a consumer that dies resumes at or before the first message it did not
finish. With `transactional=True` the handler's writes and the position commit together: exactly
once within the database.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from penstock.consumers.handlers import Middleware, Routes, check_types, is_generator
from penstock.consumers.parked import park, parked_stream
from penstock.consumers.positions import StoredPosition, positions_for
from penstock.database.operation import Operation, call, only_value
from penstock.errors import (
    HandlerFailed,
    LogChanged,
    PositionConflict,
    UnavailableError,
    ValidationError,
    first_line,
)
from penstock.log import paging, read
from penstock.log.context import LogContext, check_position, is_whole
from penstock.log.write import check_category
from penstock.loops.concurrency import is_coroutine_function
from penstock.loops.failure_policy import FailurePolicy, checked_policy
from penstock.loops.outage import Outage
from penstock.message import RecordedMessage, check_text, names

Function = TypeVar("Function", bound=Callable[..., Any])

logger = logging.getLogger("penstock")

#: how often an idle consumer looks whether a parked message is to be tried again
PARKED_LOOK_SECONDS = 1.0
#: how long a consumer with nothing to do keeps unsaved progress to itself
IDLE_SAVE_SECONDS = 1.0


_BOOKKEEPING = ("$all:position", "$all:parked")


class HasContext(Protocol):
    """What is known of a store before it is known whether it is blocking or async."""

    context: LogContext


class Progress:
    """One consumer's settings, routes and position. `Consumer` and `AsyncConsumer` inherit it."""

    _awaits: bool

    def __init__(
        self,
        store: HasContext,
        category: str,
        consumer_id: str,
        *,
        handlers: object = None,
        positions: Any = "stream",
        start: int | str = "beginning",
        batch_size: int = 100,
        polling_interval_ms: int = 100,
        longest_polling_interval_ms: int = 1000,
        position_update_interval: int = 100,
        consumer_group_member: int | None = None,
        consumer_group_size: int | None = None,
        correlation: str | None = None,
        condition: str | None = None,
        on_failure: FailurePolicy | None = None,
        unknown: str = "ignore",
        transactional: bool = False,
        middleware: Sequence[Middleware] = (),
    ) -> None:
        self._check_store(store)
        context = store.context
        check_category(category)
        check_text("consumer_id", consumer_id)
        if start not in ("beginning", "end"):
            check_position("start", start)  # type: ignore[arg-type]
        if not is_whole(position_update_interval) or position_update_interval < 1:
            raise ValidationError(
                "position_update_interval", position_update_interval, "at least 1 message"
            )
        paging.check_interval(polling_interval_ms)
        paging.check_interval(longest_polling_interval_ms)
        read.check_group(consumer_group_member, consumer_group_size)

        self.context = context
        self.category = category
        self._is_whole_log = category == "$all"
        self.consumer_id = consumer_id
        self._routes = Routes(handlers, unknown)
        self._handler_of = self._routes.handler_of
        self._positions = positions_for(positions, category, consumer_id)
        self._start = start
        self._batch_size = paging.page_size(context, batch_size)
        self._polling_interval = polling_interval_ms / 1000
        self._longest_interval = max(longest_polling_interval_ms / 1000, self._polling_interval)
        self._update_interval = position_update_interval
        self._filters = (correlation, consumer_group_member, consumer_group_size, condition)
        self._sparse = paging.is_sparse(context, correlation, consumer_group_size, condition)
        self._policy = checked_policy(on_failure, FailurePolicy.stop())
        if not isinstance(transactional, bool):
            raise ValidationError("transactional", transactional, "True or False")
        if (transactional or self._policy.parks) and not hasattr(store, "transaction"):
            raise ValidationError("store", store, "a store, which can begin a transaction")
        self._transactional = transactional
        self._middleware = self._checked(middleware)
        self.parked_stream = parked_stream(category, consumer_id)

        self._store = store
        self._stopping = self._new_event()
        self._outage = Outage(f"consumer {consumer_id}", logger)
        self._stored: StoredPosition | None = None
        #: at most how many messages retention had removed before this consumer could read them
        self.missed = 0
        self._last_saved = 0
        self._position = 0
        self._undecodable = 0
        self._has_more = False
        self._unsaved = 0
        self._last_messages = 0.0
        self._idle_looks = 0
        self._parked_version: int | None = None
        self._next_parked_look = 0.0

    def _check_store(self, store: object) -> None:
        run = getattr(store, "run", None)
        if not hasattr(store, "context") or is_coroutine_function(run) != self._awaits:
            made_by = "connect_async" if self._awaits else "connect"
            raise ValidationError("store", store, f"a store that penstock.{made_by}() returned")

    def _checked(self, middleware: Sequence[Middleware]) -> tuple[Middleware, ...]:
        if not isinstance(middleware, Sequence):
            raise ValidationError("middleware", middleware, "a list of functions")
        for one in middleware:
            if not callable(one) or is_coroutine_function(one) != self._awaits or is_generator(one):
                kind = "an async function" if self._awaits else "a plain function"
                raise ValidationError("middleware", one, kind)
        return tuple(middleware)

    @staticmethod
    def _new_event() -> Any:
        """Return the event that `stop()` sets."""
        raise NotImplementedError

    def handler(self, *types: str) -> Callable[[Function], Function]:
        """Decorate the handler of these message types; of all others, if none is named."""
        check_types(types, "handler")

        def register(function: Function) -> Function:
            self._routes.add(function, *types)
            return function

        return register

    @property
    def position(self) -> int:
        """The global position of the last message that is done with; 0 before the first."""
        return self._position

    def _load(self) -> Operation[StoredPosition]:
        return self._positions.load(self.context)

    def _loaded(self, stored: StoredPosition, head: int) -> None:
        """Begin where the position says, or at the chosen start if there is none.

        After the database was away, what was handled meanwhile and not saved stays handled, unless
        somebody moved the position back.
        """
        handled = self._position if stored.position >= self._last_saved else 0
        first = head if self._start == "end" else self._first_position()
        self._stored = stored
        self._last_saved = stored.position
        self._position = max(stored.position if stored.exists else first, handled)
        chosen = not stored.exists and self._start == "end"  # to be remembered, even if it is 0
        self._unsaved = 1 if chosen or self._position > stored.position else 0

    def _first_position(self) -> int:
        return max(0, self._start - 1) if isinstance(self._start, int) else 0

    def _can_have_missed(self, page: list[RecordedMessage]) -> bool:
        """Whether there is a gap before the page. Most have other causes than retention."""
        began = self._position > 0 or (self._stored is not None and self._stored.exists)
        return (
            began
            and self.context.edition.has_watermark
            and bool(page)
            and page[0].global_position > self._position + 1
        )

    def _removed(self, page: list[RecordedMessage]) -> Operation[int]:
        return call(
            "missed",
            "select penstock.missed(%s, %s, %s)",
            (self.category, self._position, page[0].global_position),
            only_value,
        )

    def _note_missed(self, missed: int) -> None:
        self.missed += missed
        if missed:
            logger.warning(
                "consumer %s fell behind retention: up to %d messages of %s after position %d "
                "were removed before it could read them",
                self.consumer_id,
                missed,
                self.category,
                self._position,
            )

    @property
    def _page_size(self) -> int:
        """How many messages to read: one by one up to one that cannot be decoded."""
        return 1 if self._position < self._undecodable else self._batch_size

    def _next_page(self, head: int) -> Operation[list[RecordedMessage]]:
        """Read on, up to that head: a fresh watermark may be a little lower."""
        correlation, member, size, condition = self._filters
        return read.get_category_messages(
            self.context.until(head if self._sparse else None),
            self.category,
            self._position + 1,
            self._page_size,
            correlation,
            member,
            size,
            condition,
            going_on=self._last_messages > 0,
        )

    def _start_again(self, error: LogChanged) -> None:
        """Forget how far this consumer has come in a log that is gone."""
        logger.warning("consumer %s starts again: %s", self.consumer_id, error)
        self._stored = None
        self._parked_version = None
        self._position = self._last_saved = self._unsaved = self._undecodable = 0
        self._last_messages = 0.0
        self._has_more = False

    def _head(self) -> Operation[int]:
        """Look up how far there are messages to handle."""
        if self._is_whole_log:
            return read.news_head(self.context)
        return read.category_head(self.context, self.category)

    def _is_bookkeeping(self, message: RecordedMessage) -> bool:
        """Whether a message tells of the progress of a consumer of `$all`, maybe this one.

        To handle those, or to save a position for them, would never end.
        """
        return names.category(message.stream_name) in _BOOKKEEPING

    def _got(self, page: list[RecordedMessage]) -> None:
        """Note how much came: a full page means that there may be more."""
        self._has_more = len(page) == self._page_size
        if page:
            self._last_messages = time.monotonic()

    def _passed(self, position: int) -> None:
        """Note that everything up to a position is done with."""
        self._position = position
        self._unsaved += 1

    @contextmanager
    def _saving(self) -> Iterator[None]:
        """Forget what is stored if the block is broken off: it may or may not have been saved."""
        try:
            yield
        except Exception:
            raise
        except BaseException:  # Ctrl-C, or a task that was cancelled
            self._stored = None
            raise

    def _save_is_due(self) -> bool:
        return self._unsaved >= self._update_interval

    def _idle_save_is_due(self) -> bool:
        waited = time.monotonic() - self._last_messages
        return self._unsaved > 0 and waited >= IDLE_SAVE_SECONDS

    def _save(self, position: int, durable: bool) -> Operation[StoredPosition]:
        assert self._stored is not None, "a consumer loads its position before it saves one"
        return self._positions.save(self.context, self._stored, position, durable=durable)

    def _saved(self, stored: StoredPosition) -> None:
        self._stored = stored
        self._last_saved = stored.position
        self._position = max(self._position, stored.position)
        self._unsaved = 0

    def _conflict(self) -> PositionConflict:
        expected = self._stored.position if self._stored else None
        return PositionConflict(f"{self.category}-{self.consumer_id}", expected, None)

    def _wait_for_database(self, error: UnavailableError) -> float:
        """Forget what may have changed, and return how long to wait."""
        self._outage.goes_on(error)
        self._stored = None  # a save may or may not have got through
        self._parked_version = None
        return self._longest_interval

    def _idle_pause(self, page_length: int) -> float:
        """Return how long to wait before the next look: not at all after a full page."""
        if self._has_more:
            self._idle_looks = 0
            return 0.0
        self._idle_looks = 0 if page_length else self._idle_looks + 1
        doubled = self._polling_interval * 2.0 ** min(max(self._idle_looks - 1, 0), 16)
        return min(self._longest_interval, doubled)

    def _starts_at_end(self, stored: StoredPosition) -> bool:
        return not stored.exists and self._start == "end"

    def _failed(self, message: RecordedMessage, error: BaseException) -> HandlerFailed:
        return HandlerFailed(
            message.type,
            message.stream_name,
            message.global_position,
            self._policy.attempts,
            f"{type(error).__name__}: {first_line(error)}",
        )

    def _log_failure(self, message: RecordedMessage, attempt: int, error: BaseException) -> None:
        is_last = attempt == self._policy.attempts and not self._policy.parks
        if is_last and not self._stopping.is_set():
            return  # it will be raised
        logger.warning(
            "consumer %s: attempt %d of %d on %s at %d failed: %s",
            self.consumer_id,
            attempt,
            self._policy.attempts,
            message.type,
            message.global_position,
            first_line(error),  # fit for any log
        )

    def _park(
        self, message: RecordedMessage, error: BaseException, attempts_before: int = 0
    ) -> Operation[int]:
        attempts = attempts_before + self._policy.attempts
        return park(self.context, self.parked_stream, message, error, attempts)

    def _parked_end(self) -> Operation[int | None]:
        return read.stream_version(self.context, self.parked_stream)

    def _parked_look_is_due(self) -> bool:
        """Whether to look for parked messages to try again: now and then, if any are parked."""
        if not self._policy.parks or time.monotonic() < self._next_parked_look:
            return False
        self._next_parked_look = time.monotonic() + PARKED_LOOK_SECONDS
        return True

    def _parked_changed(self, version: int | None) -> bool:
        changed = version is not None and version != self._parked_version
        self._parked_version = version
        return changed
