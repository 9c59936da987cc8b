"""How far a consumer has come, and when it saves its position or pauses. Does no I/O.

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

from penstock.consumers.positions import Positions, StoredPosition
from penstock.consumers.subscription import Subscription
from penstock.database.operation import Operation
from penstock.errors import ValidationError
from penstock.log.context import check_position, is_whole
from penstock.log.read import check_interval, page_size
from penstock.loops.durations import Duration, seconds
from penstock.message import RecordedMessage

logger = logging.getLogger("penstock")


class Progress:
    """One consumer's position: what to read next, when to save, how long to pause."""

    def __init__(
        self,
        consumer_id: str,
        subscription: Subscription,
        positions: Positions,
        *,
        start: int | str,
        batch_size: int,
        polling_interval_ms: int,
        longest_polling_interval_ms: int,
        position_update_interval: int,
        idle_save_delay: Duration,
    ) -> None:
        if start not in ("beginning", "end"):
            check_position("start", start)  # type: ignore[arg-type]
        if not is_whole(position_update_interval) or position_update_interval < 1:
            raise ValidationError(
                "position_update_interval", position_update_interval, "at least 1 message"
            )
        check_interval(polling_interval_ms)
        check_interval(longest_polling_interval_ms)
        self._consumer_id = consumer_id
        self._subscription = subscription
        self._context = subscription.context
        self._positions = positions
        self._start = start
        self._batch_size = page_size(self._context, batch_size)
        self._polling_interval = polling_interval_ms / 1000
        self.longest_pause = max(longest_polling_interval_ms / 1000, self._polling_interval)
        self._update_interval = position_update_interval
        self._idle_save_delay = seconds("idle_save_delay", idle_save_delay)

        #: the global position of the last message that is done with; 0 before the first
        self.position = 0
        #: at most how many messages retention removed before they could be read
        self.missed = 0
        #: whether the last page was full, so that there may be more to read
        self.has_more = False
        #: whether messages of this log were read: then a log that ends before them is another one
        self._resumes = False
        self._stored: StoredPosition | None = None
        self._last_saved = 0
        self._unsaved = 0
        self._undecodable = 0
        self._last_message_at = 0.0
        self._empty_pages = 0

    @property
    def is_loaded(self) -> bool:
        """Whether the stored position was loaded, and nothing can have changed it unseen."""
        return self._stored is not None

    def load(self) -> Operation[StoredPosition]:
        """Look up the stored position."""
        return self._positions.load(self._context)

    def starts_at_end(self, stored: StoredPosition) -> bool:
        """Whether this consumer has no position yet and skips what is there already."""
        return not stored.exists and self._start == "end"

    def loaded(self, stored: StoredPosition, head: int) -> None:
        """Begin at the stored position, or at the chosen start if there is none.

        After an outage, messages that were handled and not saved stay handled, unless the position
        was moved back meanwhile.
        """
        done = self.position if stored.position >= self._last_saved else 0
        first = stored.position if stored.exists else self._first_position(head)
        self._stored = stored
        self._last_saved = stored.position
        self.position = max(first, done)
        # the end is saved even if it is 0: the next start would find another
        has_to_be_saved = self.starts_at_end(stored) or self.position > stored.position
        self._unsaved = 1 if has_to_be_saved else 0

    def _first_position(self, head: int) -> int:
        if self._start == "end":
            return head
        return max(0, self._start - 1) if isinstance(self._start, int) else 0

    @property
    def page_size(self) -> int:
        """How many messages to read: one at a time up to one that cannot be decoded."""
        return 1 if self.position < self._undecodable else self._batch_size

    def next_page(self, until: int | None) -> Operation[list[RecordedMessage]]:
        """Read the messages after the position, up to a head if one is given."""
        return self._subscription.page(self.position, self.page_size, until, self._resumes)

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

    def may_have_missed(self, page: list[RecordedMessage]) -> bool:
        """Whether there is a gap before the page, which retention may have made."""
        has_begun = self.position > 0 or (self._stored is not None and self._stored.exists)
        return (
            has_begun
            and self._context.edition.has_watermark
            and bool(page)
            and page[0].global_position > self.position + 1
        )

    def removed_before(self, page: list[RecordedMessage]) -> Operation[int]:
        """Count at most how many messages retention has removed before the page."""
        return self._subscription.removed(self.position, page[0].global_position)

    def note_missed(self, missed: int) -> None:
        """Count the messages that retention removed, and log them."""
        self.missed += missed
        if missed:
            logger.warning(
                "consumer %s fell behind retention: up to %d messages of %s after position %d "
                "were removed before it could read them",
                self._consumer_id,
                missed,
                self._subscription.category,
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
        return self._unsaved > 0 and self._stored is not None

    @property
    def save_is_due(self) -> bool:
        """Whether enough messages were handled since the last save."""
        return self._unsaved >= self._update_interval

    @property
    def idle_save_is_due(self) -> bool:
        """Whether there is unsaved progress, and no message came for some time."""
        idle = time.monotonic() - self._last_message_at
        return self._unsaved > 0 and idle >= self._idle_save_delay

    def save(self, position: int, durable: bool) -> Operation[StoredPosition]:
        """Store a position, if the stored one is the one that was last seen."""
        assert self._stored is not None, "a consumer loads its position before it saves one"
        return self._positions.save(self._context, self._stored, position, durable=durable)

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Load the position again if the block is interrupted: it may or may not be saved."""
        try:
            yield
        except Exception:
            raise
        except BaseException:  # Ctrl-C, or a task that was cancelled
            self.forget_stored()
            raise

    def saved(self, stored: StoredPosition) -> None:
        """Note what is stored now."""
        self._stored = stored
        self._last_saved = stored.position
        self.position = max(self.position, stored.position)
        self._unsaved = 0

    @property
    def expected(self) -> int | None:
        """The position that the next save expects to find."""
        return self._stored.position if self._stored else None

    def forget_stored(self) -> None:
        """Load the position again before the next page."""
        self._stored = None

    def restart(self) -> None:
        """Begin again in a log that is another than before."""
        self._stored = None
        self.position = self._last_saved = self._unsaved = self._undecodable = 0
        self._last_message_at = 0.0
        self._resumes = False
        self.has_more = True

    def pause(self, page_length: int) -> float:
        """Return how long to wait before the next page: longer each time one is empty."""
        if self.has_more:
            self._empty_pages = 0
            return 0.0
        self._empty_pages = 0 if page_length else self._empty_pages + 1
        doubled = self._polling_interval * 2.0 ** min(max(self._empty_pages - 1, 0), 16)
        return min(self.longest_pause, doubled)
