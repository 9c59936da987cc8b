"""Writing to the log and reading from it."""

from __future__ import annotations

from uuid import UUID

from penstock.errors.base import PenstockError, shown


class ConcurrencyError(PenstockError, retryable=True):
    """A concurrent transaction was faster.

    Read again, decide again, and write again.
    """


class WrongExpectedVersion(ConcurrencyError, sqlstates=("PS001",)):
    """The stream is at version `actual`, not at `expected`. Nothing was written.

    Read `stream_name` again, and decide again.
    """

    stream_name: str
    expected: int
    actual: int
    template = "stream {stream_name} is at version {actual}, not {expected}"


class TransactionConflict(ConcurrencyError, sqlstates=("40001", "40P01", "55P03")):
    """PostgreSQL aborted this transaction: a deadlock or a serialization failure.

    Run the whole transaction again. Writing to streams in one order avoids deadlocks.
    """

    reason: str
    template = "the transaction conflicted with another one and was rolled back: {reason}"


class CategoryBusy(ConcurrencyError, sqlstates=("PS004",)):
    """A transaction that writes to very many streams needs an exclusive lock on `category`.

    Call `tx.lock_categories()` first, or retry.
    """

    category: str
    template = (
        "this transaction writes to so many streams that it needs an exclusive lock on category "
        "{category}, and others are writing to it: call lock_categories() first, or retry"
    )


class ConcurrentAppendError(ConcurrencyError, sqlstates=("PS043",)):
    """A message that matches the guard was written after it was read. Nothing was appended.

    Read again, decide again, and append with the new guard.
    """

    type: str
    position: int
    template = (
        "a message of type {type} was written at {position} since the decision was made: read "
        "again and decide again"
    )


class GuardedMessagesRemoved(ConcurrentAppendError, sqlstates=("PS049",)):
    """Messages of a type that the guard watches were removed after it was read.

    Some of them may have matched, and been written after that, too. Nothing was appended. Read
    again, decide again, and append with the new guard. A guard that was not read, such as
    `Guard(conditions)`, has seen none of them: read one.
    """

    template = (
        "messages of type {type} up to {position} were removed since the decision was made, and "
        "may have mattered to it: read again and decide again"
    )


class LogChanged(PenstockError, sqlstates=("PS009",)):
    """The log no longer contains what a reader has read: it was restored or truncated.

    Read again from where the backup ended: [Backup and restore](operations.md#backup-and-restore).
    A `Consumer` does so automatically, and logs a warning.
    """

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


class SizeLimitExceeded(PenstockError, sqlstates=("54000",)):
    """A name of several thousand characters, or a message of hundreds of megabytes.

    Use a shorter name. Store large contents elsewhere, and their address in the message.
    """

    reason: str
    template = "too large for PostgreSQL: {reason}"


class DuplicateMessageId(PenstockError, sqlstates=("PS002",)):
    """The id belongs to a message of another stream, or to a part of the batch only.

    Give each message its own id. `stream_name` is the stream of the existing message.
    """

    id: UUID | str
    stream_name: str | None = None

    def __str__(self) -> str:
        where = f" in stream {self.stream_name}" if self.stream_name else ""
        return f"message id {self.id} exists already{where}"


class DecodingError(PenstockError):
    """The serializer cannot decode a stored message.

    Inspect the message at `global_position`. Correct the serializer, or read on after it.
    """

    stream_name: str
    position: int
    global_position: int
    reason: str
    template = (
        "message {global_position} (stream {stream_name}, position {position}) cannot be decoded: "
        "{reason}"
    )


class UndecodableRecord(DecodingError):
    """A record of a queue cannot be decoded.

    Correct the serializer, or call `session.skip()`.
    """

    template = "record {position} of {stream_name} cannot be decoded: {reason}"

    @property
    def offset(self) -> int:
        """The record's offset."""
        return self.position


class ConditionNotActivated(PenstockError, sqlstates=("PS008",)):
    """`condition` was given, and SQL conditions are disabled.

    Connect with `sql_condition=True` to allow them: [SQL conditions](guides/conditions.md).
    """

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


class WatermarkRequired(PenstockError, sqlstates=("PS003",)):
    """A category was read in a snapshot that is older than the watermark.

    Use `store.transaction(...)`, `store.using(connection, watermark=...)`, or READ COMMITTED.
    """

    reason: str
    template = "{reason}"


class StandbyRefused(PenstockError, sqlstates=("PS005",)):
    """A category or `$all` was read on a standby, where open transactions are not visible.

    Connect to the primary, with the standby as its `replica`. Streams can be read on it alone.
    """

    where: str
    template = (
        "{where} is a standby, on which open transactions are not visible: read categories on the "
        "primary"
    )


class UnannouncedPosition(PenstockError, sqlstates=("PS006",)):
    """A row was inserted with an explicit `global_position`.

    Let the sequence assign it.
    """

    global_position: int
    template = (
        "global position {global_position} was set explicitly: let the sequence of "
        "message_store.messages assign it"
    )


class WriterNotFound(PenstockError):
    """No open transaction of this server process has written to the log.

    List the open writers: it has ended meanwhile, or never held readers back.
    """

    pid: int
    template = "server process {pid} has no open transaction that has written to the log"


class TransactionClosed(PenstockError):
    """The transaction was already committed or rolled back, or its connection was lost.

    Begin another transaction.
    """

    template = "this transaction has ended already: begin another one"


class TransactionAborted(PenstockError, sqlstates=("25P02",)):
    """An earlier statement of the transaction failed, so nothing is written.

    Let the error leave the block, or use `tx.nested()` around a statement that may fail.
    """

    template = (
        "an earlier statement of this transaction failed, so all of it was rolled back: use a "
        "savepoint around a statement that may fail"
    )


class StoreClosed(PenstockError):
    """The store was closed, or was created before this process was forked.

    Connect again.
    """

    where: str
    template = (
        "this store ({where}) was closed, or was created before this process was forked: connect "
        "again"
    )
