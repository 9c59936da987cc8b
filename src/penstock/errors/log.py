"""Writing to the log and reading from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from penstock.errors.base import PenstockError, shown


@dataclass(eq=False)
class ConcurrencyError(PenstockError):
    """A concurrent transaction was faster.

    Read again, decide again, and write again.
    """

    retryable: ClassVar[bool] = True


@dataclass(eq=False)
class WrongExpectedVersion(ConcurrencyError):
    """The stream is at version `actual`, not at `expected`. Nothing was written.

    Read `stream_name` again, and decide again.
    """

    sqlstates: ClassVar[tuple[str, ...]] = ("PS001",)

    stream_name: str
    expected: int
    actual: int

    def __str__(self) -> str:
        return f"stream {self.stream_name} is at version {self.actual}, not {self.expected}"


@dataclass(eq=False)
class TransactionConflict(ConcurrencyError):
    """PostgreSQL aborted this transaction: a deadlock or a serialization failure.

    Run the whole transaction again. Writing to streams in one order avoids deadlocks.
    """

    sqlstates: ClassVar[tuple[str, ...]] = ("40001", "40P01", "55P03")

    reason: str

    def __str__(self) -> str:
        return f"the transaction conflicted with another one and was rolled back: {self.reason}"


@dataclass(eq=False)
class CategoryBusy(ConcurrencyError):
    """A transaction that writes to very many streams needs an exclusive lock on `category`.

    Call `tx.lock_categories()` first, or retry.
    """

    sqlstates: ClassVar[tuple[str, ...]] = ("PS004",)

    category: str

    def __str__(self) -> str:
        return (
            "this transaction writes to so many streams that it needs an exclusive lock on "
            f"category {self.category}, and others are writing to it: call lock_categories() "
            "first, or retry"
        )


@dataclass(eq=False)
class ConcurrentAppendError(ConcurrencyError):
    """A message that matches the guard was written after it was read. Nothing was appended.

    Read again, decide again, and append with the new guard.
    """

    sqlstates: ClassVar[tuple[str, ...]] = ("PS043",)

    type: str
    position: int

    def __str__(self) -> str:
        return (
            f"a message of type {self.type} was written at {self.position} since the decision "
            "was made: read again and decide again"
        )


@dataclass(eq=False)
class LogChanged(PenstockError):
    """The log no longer contains what a reader has read: it was restored or truncated.

    Read again from where the backup ended: [Backup and restore](operations.md#backup-and-restore).
    A `Consumer` does so automatically, and logs a warning.
    """

    sqlstates: ClassVar[tuple[str, ...]] = ("PS009",)

    #: the last position that was read
    position: int
    #: what was read: a stream, a category or `$all`
    target: str | None = None
    #: the id of the message that was read at the position
    id: str | None = None
    #: the end of the log, if it is before the position
    end: int | None = None

    def __str__(self) -> str:
        where = f"{self.target}: " if self.target else ""
        what = f"message {self.id}, which was" if self.id else "a message was"
        problem = "is not there" if self.id else f"and the log ends at {self.end}"
        return (
            f"{where}{what} read at position {self.position}, {problem}: the log was restored or "
            "truncated since, or is another one. Read again from where the backup ended: a client "
            "with position=, a Spark stream with option onRestore (the last position in the backup)"
        )


@dataclass(eq=False)
class SizeLimitExceeded(PenstockError):
    """A name of several thousand characters, or a message of hundreds of megabytes.

    Use a shorter name. Store large contents elsewhere, and their address in the message.
    """

    sqlstates: ClassVar[tuple[str, ...]] = ("54000",)

    reason: str

    def __str__(self) -> str:
        return f"too large for PostgreSQL: {self.reason}"


@dataclass(eq=False)
class DuplicateMessageId(PenstockError):
    """The id belongs to a message of another stream, or to a part of the batch only.

    Give each message its own id. `stream_name` is the stream of the existing message.
    """

    sqlstates: ClassVar[tuple[str, ...]] = ("PS002",)

    id: UUID | str
    stream_name: str | None = None

    def __str__(self) -> str:
        where = f" in stream {self.stream_name}" if self.stream_name else ""
        return f"message id {self.id} exists already{where}"


@dataclass(eq=False)
class DecodingError(PenstockError):
    """The serializer cannot decode a stored message.

    Inspect the message at `global_position`. Correct the serializer, or read on after it.
    """

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
    """A record of a queue cannot be decoded.

    Correct the serializer, or call `session.skip()`.
    """

    @property
    def offset(self) -> int:
        """The record's offset."""
        return self.position

    def __str__(self) -> str:
        return f"record {self.offset} of {self.stream_name} cannot be decoded: {self.reason}"


@dataclass(eq=False)
class ConditionNotActivated(PenstockError):
    """`condition` was given, and SQL conditions are disabled.

    Connect with `sql_condition=True` to allow them: [SQL conditions](guides/conditions.md).
    """

    sqlstates: ClassVar[tuple[str, ...]] = ("PS008",)

    condition: str = ""

    def __str__(self) -> str:
        if not self.condition:  # raised by the server, in a session that is not the store's
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
    """A category was read in a snapshot that is older than the watermark.

    Use `store.transaction(...)`, `store.using(connection, watermark=...)`, or READ COMMITTED.
    """

    sqlstates: ClassVar[tuple[str, ...]] = ("PS003",)

    reason: str

    def __str__(self) -> str:
        return self.reason


@dataclass(eq=False)
class StandbyRefused(PenstockError):
    """A category or `$all` was read on a standby, where open transactions are not visible.

    Read it on the primary. Single streams can be read on a standby.
    """

    sqlstates: ClassVar[tuple[str, ...]] = ("PS005",)

    where: str

    def __str__(self) -> str:
        return (
            f"{self.where} is a standby, on which open transactions are not visible: read "
            "categories on the primary"
        )


@dataclass(eq=False)
class UnannouncedPosition(PenstockError):
    """A row was inserted with an explicit `global_position`.

    Let the sequence assign it.
    """

    sqlstates: ClassVar[tuple[str, ...]] = ("PS006",)

    global_position: int

    def __str__(self) -> str:
        return (
            f"global position {self.global_position} was set explicitly: let the sequence of "
            "message_store.messages assign it"
        )


@dataclass(eq=False)
class TransactionClosed(PenstockError):
    """The transaction was already committed or rolled back, or its connection was lost.

    Begin another transaction.
    """

    def __str__(self) -> str:
        return "this transaction has ended already: begin another one"


@dataclass(eq=False)
class TransactionAborted(PenstockError):
    """An earlier statement of the transaction failed, so nothing is written.

    Let the error leave the block, or use `tx.nested()` around a statement that may fail.
    """

    sqlstates: ClassVar[tuple[str, ...]] = ("25P02",)

    def __str__(self) -> str:
        return (
            "an earlier statement of this transaction failed, so all of it was rolled back: "
            "use a savepoint around a statement that may fail"
        )


@dataclass(eq=False)
class StoreClosed(PenstockError):
    """The store was closed, or was created before this process was forked.

    Connect again.
    """

    where: str

    def __str__(self) -> str:
        return (
            f"this store ({self.where}) was closed, or was created before this process was "
            "forked: connect again"
        )
