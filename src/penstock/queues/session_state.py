"""Where a session stands, and what each of its calls means there. Does no I/O.

A session has a **position**, the offset that the next `poll` reads, and the database has the
**stored offset**, where the next session will go on.

| call | auto commit | manual commit |
|---|---|---|
| `poll` | moves both past the record, in one call | nothing; reading ahead, the position |
| `commit` | does nothing | moves both past a record; never back, but for a seek before it |
| `seek` | moves both | moves the position; the next commit stores it, also if that is back |

In a transaction of the caller's, a rollback takes the stored offset back. The session remembers
the one that it saw last; where it finds a lower one, it goes on from there, and what it had polled
since cannot be committed any more.

A poll whose record was removed by retention goes on at the oldest that is left, and counts the
`missed`. A record that cannot be decoded keeps the session where it is until `skip` or a seek.

Each method checks its arguments and returns a `Step`: the operation to run, and what its answer
does to the session. Until the answer is there nothing has changed; so a step that failed or was
cancelled can be taken again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from penstock.database.operation import Operation
from penstock.errors import (
    NothingToCommit,
    NothingToSkip,
    SessionClosed,
    SessionInUse,
    UndecodableRecord,
    ValidationError,
)
from penstock.log.context import LogContext
from penstock.queues import operations
from penstock.queues.operations import Opened, Polled, Sought
from penstock.queues.record import ConsumedRecord

Answer = TypeVar("Answer")
Result = TypeVar("Result")

logger = logging.getLogger("penstock")

#: the pause between two looks for a record doubles from the one to the other
SHORTEST_PAUSE = 0.001
LONGEST_PAUSE = 0.1


class CommitMode(Enum):
    """When a session's offset is stored."""

    #: with each poll: at most once
    AUTO_COMMIT = "auto"
    #: when `commit` is called: at least once
    MANUAL_COMMIT = "manual"


@dataclass(frozen=True, slots=True)
class Step(Generic[Answer, Result]):
    """An operation, and what its answer means to the session."""

    operation: Operation[Answer]
    settle: Callable[[Answer], Result]


class SessionState:
    """One session's place in its queue."""

    def __init__(
        self, context: LogContext, opened: Opened, mode: CommitMode, read_ahead: bool
    ) -> None:
        self.id = opened.id
        self.mode = mode
        self.missed = 0
        self.closed = False
        self._context = context
        self._read_ahead = read_ahead
        self._position = opened.next_offset
        #: the stored offset, as it was last seen
        self._stored = opened.next_offset
        #: the last record polled, while it is not committed
        self._polled: int | None = None
        #: where a seek went, while no commit has stored it
        self._sought: int | None = None
        #: the record at the position, if it cannot be decoded
        self._undecodable: int | None = None
        self._using = threading.Lock()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Refuse a second caller while one is inside the block, and all once it is closed."""
        if not self._using.acquire(blocking=False):
            raise SessionInUse(self.id.stream_name, self.id.consumer_id)
        try:
            self._check_open()
            yield
        finally:
            self._using.release()

    def poll(self) -> Step[Polled, ConsumedRecord | None]:
        """Read the record at the position."""
        self._check_open()
        operation = operations.poll(
            self._context, self.id, self._position, self._auto, self._stored
        )
        return Step(operation, self._settle_poll)

    def commit(self, offset: int | None = None) -> Step[int, None] | None:
        """Store that a record, or else the last one polled, is done with. None: nothing to do."""
        if self._auto:
            return None
        next_offset = max(self._next_to_store(offset), self._sought or 0)
        rewind = self._sought is not None
        # who names an offset, or went back on purpose, knows what is done with
        seen = 0 if rewind or offset is not None else self._stored
        operation = operations.commit(self.id, next_offset, rewind, seen)
        return Step(operation, lambda stored: self._settle_commit(next_offset, stored))

    def seek(self, offset: int | None) -> Step[Sought, int]:
        """Go to an offset, or to the tail if None; the result is how many records are gone."""
        if offset is not None:
            operations.check_offset("offset", offset)
        return Step(operations.seek(self.id, offset, self._auto), self._settle_seek)

    def skip(self) -> int:
        """Pass over the record that cannot be decoded, and return its offset."""
        skipped = self._undecodable
        if skipped is None:
            raise NothingToSkip(self.id.stream_name, self.id.consumer_id)
        self._settle_record(skipped, moves=True)
        return skipped

    def committed_offset(self) -> Step[int, int]:
        """Look up the stored offset."""
        return Step(operations.committed_offset(self.id), lambda stored: stored)

    @property
    def _auto(self) -> bool:
        return self.mode is CommitMode.AUTO_COMMIT

    def _check_open(self) -> None:
        if self.closed:
            raise SessionClosed(self.id.stream_name, self.id.consumer_id)

    def _next_to_store(self, offset: int | None) -> int:
        if offset is not None:
            return operations.check_offset("offset", offset) + 1
        if self._polled is not None:
            return self._polled + 1
        if self._sought is not None:
            return self._sought
        raise NothingToCommit(self.id.stream_name, self.id.consumer_id)

    def _settle_poll(self, polled: Polled) -> ConsumedRecord | None:
        fetched = polled.fetched
        if polled.stored < self._stored:
            self._go_back(polled.stored)
        self._stored = polled.stored
        if fetched is None:
            return None
        if self._auto:
            self._stored = max(self._stored, fetched.offset + 1)
        self._note_missed(fetched.offset - self._position)
        self._position = fetched.offset
        if isinstance(fetched.record, UndecodableRecord):
            self._undecodable = fetched.offset
            raise fetched.record
        self._settle_record(fetched.offset, moves=self._auto or self._read_ahead)
        return fetched.record

    def _settle_record(self, offset: int, moves: bool) -> None:
        self._undecodable = None
        self._polled = None if self._auto else offset
        self._position = offset + 1 if moves else offset

    def _settle_commit(self, next_offset: int, stored: int) -> None:
        if stored < next_offset:  # so nothing was stored: a rollback came before
            self._go_back(stored)
            raise NothingToCommit(self.id.stream_name, self.id.consumer_id)
        self._stored = stored
        self._sought = None
        self._position = max(self._position, next_offset)
        if self._polled is not None and self._polled < next_offset:
            self._polled = None
        if self._undecodable is not None and self._undecodable < next_offset:
            self._undecodable = None

    def _go_back(self, stored: int) -> None:
        """Begin again where the stored offset is, since a rollback took it back."""
        self._stored = self._position = stored
        self._polled = self._sought = self._undecodable = None

    def _settle_seek(self, sought: Sought) -> int:
        self._polled = self._undecodable = None
        self._position = sought.next_offset
        self._sought = None if self._auto else sought.next_offset
        if self._auto:
            self._stored = sought.next_offset
        return sought.skipped

    def _note_missed(self, count: int) -> None:
        if count:
            self.missed += count
            logger.warning(
                "consumer %s of %s missed %d records: retention removed them before they were read",
                self.id.consumer_id,
                self.id.stream_name,
                count,
            )


def check_options(mode: CommitMode, read_ahead: bool) -> None:
    """Refuse a mode that is none, and read-ahead where every poll is committed anyway."""
    if not isinstance(mode, CommitMode):
        raise ValidationError("mode", mode, "CommitMode.AUTO_COMMIT or CommitMode.MANUAL_COMMIT")
    if read_ahead and mode is CommitMode.AUTO_COMMIT:
        raise ValidationError("read_ahead", read_ahead, "False, or else mode MANUAL_COMMIT")


def pauses(timeout: float | None) -> Iterator[float]:
    """Return the pauses between looks for a record: none without a timeout (in seconds)."""
    if timeout is None:
        return iter(())
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout >= 0:
        raise ValidationError("timeout", timeout, "a number of seconds of 0 or more")
    return _pauses(time.monotonic() + timeout)


def _pauses(deadline: float) -> Iterator[float]:
    pause = SHORTEST_PAUSE
    while (left := deadline - time.monotonic()) > 0:
        yield min(pause, left)
        pause = min(2 * pause, LONGEST_PAUSE)
