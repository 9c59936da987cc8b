"""The state of a session, and what each of its calls does to it. Does no I/O.

A session has a **position**, the offset that the next `poll` reads. The database has the **stored
offset**, from which the next session continues.

| call | auto commit | manual commit |
|---|---|---|
| `poll` | moves both past the record | moves neither; with read-ahead, the position |
| `commit` | does nothing | moves both past a record; back only after a seek |
| `seek` | moves both | moves the position; the next commit stores it, also if that is back |

In your own transaction, a rollback also undoes commits. The session keeps the stored offset that it
saw last. If it finds a lower one, it continues from there, and what it polled before the rollback
can no longer be committed.

If retention has removed the record at the position, a poll continues at the oldest one left, and
adds the others to `missed`. If the archive may have the record, further transitions follow: one
reads it there, and one stores the offset. At a record that cannot be decoded, the session stays
until `skip` or a seek.

Each method checks its arguments and returns a `Transition`: the operation to run, and the change
that its result makes. Nothing changes before that, so a call that failed or was cancelled can be
repeated. `sql/penstock/20_sessions.sql` compares the epoch of each call with that of the newest
session.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeVar

from penstock.database.operation import Operation, Row, call, only_value
from penstock.errors import (
    NothingToCommit,
    NothingToSkip,
    SessionClosed,
    SessionInUse,
    UndecodableRecord,
    ValidationError,
)
from penstock.log.context import LogContext
from penstock.loops.durations import Duration, seconds
from penstock.queues.operations import SessionId, check_offset, decoded, oldest_from
from penstock.queues.record import ConsumedRecord

Answer = TypeVar("Answer")
Result = TypeVar("Result")
#: a record of the queue, or why it cannot be decoded; None if there is none
Found = ConsumedRecord | UndecodableRecord | None
#: the offset that was stored before a poll, and the record that it found; or else the offset of the
#: record that the archive may have
Polled = tuple[int, Found, int | None]

logger = logging.getLogger("penstock")

#: a poll that waits looks for a record after a pause, which doubles from the first to the second
SHORTEST_PAUSE = 0.001
LONGEST_PAUSE = 0.1


class CommitMode(Enum):
    """When a session's offset is stored."""

    #: with each poll: at most once
    AUTO_COMMIT = "auto"
    #: when `commit` is called: at least once
    MANUAL_COMMIT = "manual"


@dataclass(frozen=True, slots=True)
class Transition(Generic[Answer, Result]):
    """An operation, and the change that its result makes to the session.

    Instead of a result, `apply` may return the transition that follows.
    """

    operation: Operation[Answer]
    apply: Callable[[Answer], Result | Transition[Any, Result]]


class Sought(NamedTuple):
    """Where a seek went, and how many records it skipped; or that the archive may have them."""

    next_offset: int
    skipped: int
    archived: bool


class SessionState:
    """The state of one session."""

    def __init__(
        self,
        context: LogContext,
        id: SessionId,
        next_offset: int,
        mode: CommitMode,
        read_ahead: bool,
    ) -> None:
        self.id = id
        self.mode = mode
        self.missed = 0
        self.closed = False
        self._context = context
        self._read_ahead = read_ahead
        self._position = next_offset
        #: the stored offset, as it was last seen
        self._stored = next_offset
        #: the last record polled, until it is committed
        self._polled: int | None = None
        #: where a seek went, until a commit stores it
        self._sought: int | None = None
        #: the record at the position, if it cannot be decoded
        self._undecodable: int | None = None
        self._using = threading.Lock()
        self._facts: dict[str, Any] = {"stream_name": id.stream_name, "consumer_id": id.consumer_id}

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Refuse a second caller while one is inside the block, and any after `close()`."""
        if not self._using.acquire(blocking=False):
            raise SessionInUse(self.id.stream_name, self.id.consumer_id)
        try:
            self._check_open()
            yield
        finally:
            self._using.release()

    def poll(self) -> Transition[Polled, ConsumedRecord | None]:
        """Read the record at the position, or the oldest one after it.

        If the stored offset is below the one that the session saw last, then a rollback has undone
        a commit: the record at the stored offset is read instead.
        """
        self._check_open()
        operation = call(
            "poll",
            "select s.stored, m.id, m.stream_name, m.type, m.position, m.global_position, m.data,"
            " m.metadata, m.time"
            " from (select penstock.committed_offset(%s, %s, %s) as stored) s"
            " left join lateral penstock.poll_session(%s, %s, %s,"
            " case when s.stored < %s then s.stored else %s end, %s) m on true",
            (*self.id, *self.id, self._stored, self._position, self._auto),
            self._decode_poll,
            **self._facts,
        )
        return Transition(operation, self._apply_poll)

    def commit(self, offset: int | None = None) -> Transition[int, None] | None:
        """Store the offset after a record, or else after the last one polled. None: do nothing.

        If the stored offset is below the one that the session saw last, then a rollback has undone
        a commit, and nothing is stored.
        """
        if self._auto:
            return None
        next_offset = max(self._next_to_store(offset), self._sought or 0)
        rewind = self._sought is not None
        # a caller that gives an offset, or went back by a seek, does not rely on the last poll
        seen = 0 if rewind or offset is not None else self._stored
        operation: Operation[int] = call(
            "commit",
            "select case when s.stored < %s then s.stored"
            " else penstock.commit_session(%s, %s, %s, %s, %s) end"
            " from (select penstock.committed_offset(%s, %s, %s) as stored) s",
            (seen, *self.id, next_offset, rewind, *self.id),
            only_value,
            **self._facts,
        )
        return Transition(operation, lambda stored: self._apply_commit(next_offset, stored))

    def seek(self, offset: int | None) -> Transition[Sought, int]:
        """Go to an offset, or to the tail if None; the result is how many records were removed."""
        if offset is not None:
            check_offset("offset", offset)
        return self._seek(offset, None)

    def _seek(self, offset: int | None, oldest: int | None) -> Transition[Sought, int]:
        operation: Operation[Sought] = call(
            "seek",
            "select next_offset, skipped, archived from"
            " penstock.seek_session(%s, %s, %s, %s, %s, %s)",
            (*self.id, offset, self._auto, oldest),
            lambda rows: Sought(*rows[0]),
            **self._facts,
        )
        return Transition(operation, lambda sought: self._apply_seek(offset, sought))

    def skip(self) -> int:
        """Skip the record that cannot be decoded, and return its offset."""
        skipped = self._undecodable
        if skipped is None:
            raise NothingToSkip(self.id.stream_name, self.id.consumer_id)
        self._pass_record(skipped, moves=True)
        return skipped

    def committed_offset(self) -> Operation[int]:
        """Look up the stored offset."""
        sql = "select penstock.committed_offset(%s, %s, %s)"
        return call("committed_offset", sql, self.id, only_value, **self._facts)

    @property
    def _auto(self) -> bool:
        return self.mode is CommitMode.AUTO_COMMIT

    def _check_open(self) -> None:
        if self.closed:
            raise SessionClosed(self.id.stream_name, self.id.consumer_id)

    def _next_to_store(self, offset: int | None) -> int:
        if offset is not None:
            return check_offset("offset", offset) + 1
        if self._polled is not None:
            return self._polled + 1
        if self._sought is not None:
            return self._sought
        raise NothingToCommit(self.id.stream_name, self.id.consumer_id)

    def _decode_poll(self, rows: list[Row]) -> Polled:
        stored, *message = rows[0]
        if message[0] is None:  # nothing, or a mark: the archive may have it
            return stored, None, message[3]
        return stored, decoded(self._context, tuple(message)), None

    def _apply_poll(
        self, polled: Polled
    ) -> ConsumedRecord | Transition[Any, ConsumedRecord | None] | None:
        stored, record, archived = polled
        if stored < self._stored:
            self._go_back(stored)
        self._stored = stored
        if archived is not None:
            oldest = oldest_from(self._context, self.id.stream_name, archived)
            return Transition(oldest, self._apply_oldest)
        return self._apply_record(record)

    def _apply_oldest(
        self, record: Found
    ) -> ConsumedRecord | Transition[Any, ConsumedRecord | None] | None:
        """Take a record that is archived; store the offset after it first, as a poll does."""
        if record is None or not self._auto:
            return self._apply_record(record)
        operation: Operation[int] = call(
            "commit",
            "select penstock.store_offset(%s, %s, %s, %s)",
            (*self.id, record.offset + 1),
            only_value,
            **self._facts,
        )
        return Transition(operation, lambda stored: self._apply_record(record))

    def _apply_record(self, record: Found) -> ConsumedRecord | None:
        if record is None:
            return None
        if self._auto:
            self._stored = max(self._stored, record.offset + 1)
        self._note_missed(record.offset - self._position)
        self._position = record.offset
        if isinstance(record, UndecodableRecord):
            self._undecodable = record.offset
            raise record
        self._pass_record(record.offset, moves=self._auto or self._read_ahead)
        return record

    def _pass_record(self, offset: int, moves: bool) -> None:
        self._undecodable = None
        self._polled = None if self._auto else offset
        self._position = offset + 1 if moves else offset

    def _apply_commit(self, next_offset: int, stored: int) -> None:
        if stored < next_offset:  # nothing was stored, because of a rollback
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
        """Continue from the stored offset after a rollback."""
        self._stored = self._position = stored
        self._polled = self._sought = self._undecodable = None

    def _apply_seek(self, wanted: int | None, sought: Sought) -> int | Transition[Any, int]:
        if sought.archived:
            assert wanted is not None
            oldest = oldest_from(self._context, self.id.stream_name, wanted)
            return Transition(
                oldest,
                lambda found: self._seek(wanted, wanted if found is None else found.offset),
            )
        next_offset, skipped = sought.next_offset, sought.skipped
        self._polled = self._undecodable = None
        self._position = next_offset
        self._sought = None if self._auto else next_offset
        if self._auto:
            self._stored = next_offset
        return skipped

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
    """Check the mode. Read-ahead needs manual commits."""
    if not isinstance(mode, CommitMode):
        raise ValidationError("mode", mode, "CommitMode.AUTO_COMMIT or CommitMode.MANUAL_COMMIT")
    if read_ahead and mode is CommitMode.AUTO_COMMIT:
        raise ValidationError("read_ahead", read_ahead, "False, or True with MANUAL_COMMIT")


def deadline_after(timeout: Duration | None) -> float | None:
    """Return when a poll ends by the monotonic clock; None if it does not wait."""
    if timeout is None:
        return None
    return time.monotonic() + seconds("timeout", timeout, most=math.inf)


def pauses(deadline: float) -> Iterator[float]:
    """Return the pauses before a poll looks again without wake-ups, in seconds."""
    pause = SHORTEST_PAUSE
    while (left := deadline - time.monotonic()) > 0:
        yield min(pause, left)
        pause = min(2 * pause, LONGEST_PAUSE)
