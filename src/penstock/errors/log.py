"""What can go wrong in writing to and reading from the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from penstock.errors.base import PenstockError, shown


@dataclass(eq=False)
class ConcurrencyError(PenstockError):
    """Somebody else was first. Read again, decide again, and retry."""

    retryable: ClassVar[bool] = True


@dataclass(eq=False)
class WrongExpectedVersion(ConcurrencyError):
    """The stream has moved on since it was read. Nothing was written."""

    stream_name: str
    expected: int
    actual: int

    def __str__(self) -> str:
        return f"stream {self.stream_name} is at version {self.actual}, not {self.expected}"


@dataclass(eq=False)
class TransactionConflict(ConcurrencyError):
    """PostgreSQL ended this transaction in favour of another. Run it again as a whole."""

    reason: str

    def __str__(self) -> str:
        return f"the transaction lost to another one and was rolled back: {self.reason}"


@dataclass(eq=False)
class CategoryBusy(ConcurrencyError):
    """A transaction that writes to very many streams needs the category, and others write to it."""

    category: str

    def __str__(self) -> str:
        return (
            f"this transaction writes to so many streams that it needs category {self.category} "
            "to itself, and others are writing to it: call lock_categories() first, or retry"
        )


@dataclass(eq=False)
class ConcurrentAppendError(ConcurrencyError):
    """A message that the guard watches was written since. Nothing was appended."""

    type: str
    position: int

    def __str__(self) -> str:
        return (
            f"a message of type {self.type} was written at {self.position} since the decision "
            "was made: read again and decide again"
        )


@dataclass(eq=False)
class LogChanged(PenstockError):
    """The log does not hold what a reader has read: it was restored or truncated since."""

    #: that was read, and by which stream, category or `$all`, where that is known
    position: int
    target: str | None = None
    #: of the message that was read there
    id: str | None = None
    #: where the log ends, if that is before the position
    end: int | None = None

    def __str__(self) -> str:
        where = f"{self.target}: " if self.target else ""
        what = f"message {self.id}, which was" if self.id else "a message was"
        fault = "is not there" if self.id else f"and the log ends at {self.end}"
        return (
            f"{where}{what} read at position {self.position}, {fault}: the log was restored or "
            "truncated since, or is another one. Read again from where the backup ended: a client "
            "with position=, a Spark stream with option onRestore (the last position in the backup)"
        )


@dataclass(eq=False)
class TooLarge(PenstockError):
    """PostgreSQL cannot hold a name this long, or a message this large. Nothing was written."""

    reason: str

    def __str__(self) -> str:
        return f"too large for PostgreSQL: {self.reason}"


@dataclass(eq=False)
class DuplicateMessageId(PenstockError):
    """The id belongs to another message already. Nothing was written."""

    id: UUID | str
    stream_name: str | None = None

    def __str__(self) -> str:
        where = f" in stream {self.stream_name}" if self.stream_name else ""
        return f"message id {self.id} exists already{where}"


@dataclass(eq=False)
class DecodingError(PenstockError):
    """A stored message cannot be decoded. It is named, so that it can be looked at or skipped."""

    stream_name: str
    position: int
    global_position: int
    reason: str

    def __str__(self) -> str:
        return (
            f"message {self.global_position} (stream {self.stream_name}, position {self.position}) "
            f"cannot be decoded: {self.reason}"
        )


@dataclass(eq=False)
class UndecodableRecord(DecodingError):
    """A record of a queue cannot be decoded. `session.skip()` passes over it."""

    @property
    def offset(self) -> int:
        """The record's offset."""
        return self.position

    def __str__(self) -> str:
        return f"record {self.offset} of {self.stream_name} cannot be decoded: {self.reason}"


@dataclass(eq=False)
class ConditionNotActivated(PenstockError):
    """A SQL condition was given, and they are switched off."""

    condition: str

    def __str__(self) -> str:
        if not self.condition:  # the server refused it, in a session that is not the store's
            return (
                "SQL conditions are switched off in this session: "
                "`set message_store.sql_condition = 'on'` allows them"
            )
        return (
            f"the SQL condition {shown(self.condition)} was refused: conditions run as SQL on the "
            "server; connect with sql_condition=True to allow them"
        )


@dataclass(eq=False)
class WatermarkRequired(PenstockError):
    """Many streams were read in a snapshot that is older than the watermark."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@dataclass(eq=False)
class StandbyRefused(PenstockError):
    """Many streams were read on a standby, which does not know which writers are open."""

    where: str

    def __str__(self) -> str:
        return (
            f"{self.where} is a standby, which does not know which writers are open: read "
            "categories on the primary"
        )


@dataclass(eq=False)
class UnannouncedPosition(PenstockError):
    """A message was inserted with a global position made by hand, below where it may write."""

    global_position: int

    def __str__(self) -> str:
        return (
            f"global position {self.global_position} was made by hand: let the sequence of "
            "message_store.messages number the messages"
        )


@dataclass(eq=False)
class TransactionClosed(PenstockError):
    """The transaction was committed, rolled back or lost already."""

    def __str__(self) -> str:
        return "this transaction has ended already: begin another one"


@dataclass(eq=False)
class TransactionAborted(PenstockError):
    """A statement failed, so the transaction cannot go on, and a commit rolls it back."""

    def __str__(self) -> str:
        return (
            "an earlier statement of this transaction failed, so all of it was rolled back: "
            "use a savepoint around a statement that may fail"
        )


@dataclass(eq=False)
class StoreClosed(PenstockError):
    """The store was closed, or made by the process that this one was forked from."""

    where: str

    def __str__(self) -> str:
        return (
            f"this store ({self.where}) was closed, or belongs to the process that this one was "
            "forked from: connect again"
        )
