"""What a consumer reads next, and when it saves its position or pauses. Does no I/O.

The promise is at least once. The **position** is the last message that is done with: handled,
parked, or without a handler. The database holds the **stored position**, which never passes it. So
a consumer that crashes resumes at or before the first message that it did not finish.

A save succeeds only if the stored position is still the one that this consumer saw last. Where it
cannot say what is stored (before its first page, after an outage, after an interrupted save) it
loads the position again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from penstock.consumers.positions import Positions, StoredPosition
from penstock.database.operation import Operation, call, only_value
from penstock.log import read
from penstock.log.context import LogContext, check_position
from penstock.loops.durations import Duration, seconds
from penstock.message import RecordedMessage

logger = logging.getLogger("penstock")

_BOOKKEEPING_OF_WHOLE_LOG = ("$all:position", "$all:parked")


@dataclass(frozen=True, slots=True)
class Subscription:
    """Which messages a consumer reads: a category, and the filters on it."""

    context: LogContext
    category: str
    correlation: str | None = None
    consumer_group_member: int | None = None
    consumer_group_size: int | None = None
    condition: str | None = None

    def __post_init__(self) -> None:
        """Check the consumer group."""
        read.check_group(self.consumer_group_member, self.consumer_group_size)

    @property
    def is_filtered(self) -> bool:
        """Whether it leaves out messages of the category, in a log whose head can be read."""
        return read.is_sparse(
            self.context, self.correlation, self.consumer_group_size, self.condition
        )

    def head(self) -> Operation[int]:
        """Read the global position of the last message there is."""
        if self.category == "$all":
            return read.head_without_bookkeeping(self.context)
        return read.category_head(self.context, self.category)

    def is_own_bookkeeping(self, message: RecordedMessage) -> bool:
        """Whether a consumer of the whole log wrote it: a position, or a parked message.

        Handling these, or saving a position after them, would write more of them, without end.
        """
        return self.category == "$all" and message.category in _BOOKKEEPING_OF_WHOLE_LOG


@dataclass(eq=False)
class Progress:
    """One consumer's position: what to read next, when to save, how long to pause."""

    consumer_id: str
    subscription: Subscription
    positions: Positions
    start: int | str
    batch_size: int
    polling_interval_ms: int
    longest_polling_interval_ms: int
    position_update_interval: int
    idle_save_delay: Duration

    def __post_init__(self) -> None:
        """Check the options."""
        if self.start not in ("beginning", "end"):
            check_position("start", self.start)  # type: ignore[arg-type]
        check_position("position_update_interval", self.position_update_interval, 1)
        read.check_interval(self.polling_interval_ms)
        read.check_interval(self.longest_polling_interval_ms)
        self._batch_size = read.page_size(self.subscription.context, self.batch_size)
        self._idle_save_delay = seconds("idle_save_delay", self.idle_save_delay)
        self.longest_pause = max(self.longest_polling_interval_ms, self.polling_interval_ms) / 1000
        self.restart()
        #: whether the last page was full, so that there may be more to read
        self.has_more = False
        #: at most how many messages retention removed before they could be read
        self.missed = 0
        self._empty_pages = 0

    def restart(self) -> None:
        """Begin in a log of which nothing was read."""
        #: as it was last loaded or saved; None if something may have changed it unseen
        self.stored: StoredPosition | None = None
        self.last_saved = 0
        #: the global position of the last message that is done with; 0 before the first
        self.position = 0
        #: whether messages of this log were read: then a log that ends before them is another one
        self._resumes = False
        self._unsaved = 0
        self._undecodable = 0
        self._last_message_at = 0.0
        self.has_more = True

    def loaded(self, stored: StoredPosition, end: int | None) -> None:
        """Begin at the stored position; if there is none, at the given end or the chosen start.

        After an outage, messages that were handled and not saved stay handled, unless the position
        was moved back meanwhile.
        """
        done = self.position if stored.position >= self.last_saved else 0
        start = self.start - 1 if isinstance(self.start, int) else end or 0
        self.saved(stored)
        self.position = max(stored.position if stored.exists else start, done)
        # the end is saved even if it is 0: the next start would find another
        self._unsaved = int(end is not None or self.position > stored.position)

    @property
    def page_size(self) -> int:
        """How many messages to read: one at a time up to one that cannot be decoded."""
        return 1 if self.position < self._undecodable else self._batch_size

    def next_page(self, until: int | None) -> Operation[list[RecordedMessage]]:
        """Read the messages after the position, up to a head if one is given."""
        wanted = self.subscription
        return read.get_category_messages(
            wanted.context.until(until),
            wanted.category,
            self.position + 1,
            self.page_size,
            wanted.correlation,
            wanted.consumer_group_member,
            wanted.consumer_group_size,
            wanted.condition,
            resumes=self._resumes,
        )

    def cannot_decode(self, global_position: int) -> bool:
        """Note which message could not be decoded. False if it is the next one."""
        if self.page_size == 1:
            return False
        self._undecodable = global_position
        return True

    def fetched(self, page: list[RecordedMessage]) -> None:
        """Note a page that was read and is handled next."""
        self.has_more = len(page) == self.page_size
        if page:
            self._resumes = True
            self._last_message_at = time.monotonic()

    def removed_before(self, page: list[RecordedMessage]) -> Operation[int] | None:
        """Count at most how many messages retention removed before the page; None without a gap."""
        if not page or page[0].global_position <= self.position + 1:
            return None
        has_begun = self.position > 0 or (self.stored is not None and self.stored.exists)
        if not has_begun or not self.subscription.context.edition.has_watermark:
            return None
        arguments = (self.subscription.category, self.position, page[0].global_position)
        return call("missed", "select penstock.missed(%s, %s, %s)", arguments, only_value)

    def note_missed(self, missed: int) -> None:
        """Count the messages that retention removed, and log them."""
        self.missed += missed
        if missed:
            logger.warning(
                "consumer %s fell behind retention: up to %d messages of %s after position %d "
                "were removed before it could read them",
                self.consumer_id,
                missed,
                self.subscription.category,
                self.position,
            )

    def done(self, position: int) -> None:
        """Note that all messages up to a position are done with."""
        self.position = position
        self._unsaved += 1

    def read_until(self, head: int | None) -> None:
        """Note that a page has ended at this head: filters have left out all messages before it."""
        if head is not None and head > self.position and not self.has_more:
            self.done(head)

    @property
    def is_unsaved(self) -> bool:
        """Whether there is progress to save."""
        return self._unsaved > 0 and self.stored is not None

    @property
    def save_is_due(self) -> bool:
        """Whether enough messages were handled since the last save."""
        return self._unsaved >= self.position_update_interval

    @property
    def idle_save_is_due(self) -> bool:
        """Whether no message came for some time."""
        return time.monotonic() >= self.idle_save_due

    @property
    def idle_save_due(self) -> float:
        """When the position is saved if no message comes, by the monotonic clock."""
        return self._last_message_at + self._idle_save_delay

    def save(self, position: int, durable: bool) -> Operation[StoredPosition]:
        """Store a position, if the stored one is the one that was last seen."""
        assert self.stored is not None, "a consumer loads its position before it saves one"
        context = self.subscription.context
        return self.positions.save(context, self.stored, position, durable=durable)

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Load the position again if the block is interrupted: it may or may not be saved."""
        try:
            yield
        except Exception:
            raise
        except BaseException:  # Ctrl-C, or a task that was cancelled
            self.stored = None
            raise

    def saved(self, stored: StoredPosition) -> None:
        """Note what is stored now."""
        self.stored = stored
        self.last_saved = stored.position
        self.position = max(self.position, stored.position)
        self._unsaved = 0

    def pause(self, page_length: int) -> float:
        """Return how long to wait before the next page: longer each time one is empty."""
        if self.has_more:
            self._empty_pages = 0
            return 0.0
        self._empty_pages = 0 if page_length else self._empty_pages + 1
        doubled = self.polling_interval_ms / 1000 * 2.0 ** min(max(self._empty_pages - 1, 0), 16)
        return min(self.longest_pause, doubled)
