"""An operation is a value: SQL, its arguments, and how to decode the rows.

Pure functions build operations, and a connection runs them. So behaviour is written once for
blocking and async code, in and out of transactions, on pooled connections and on the caller's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, LiteralString, Self, TypeVar
from uuid import UUID

import msgspec
import msgspec.structs
from psycopg.sql import Composed

Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)
Row = tuple[Any, ...]
GLOBAL_POSITION = 4  # a column of the type message_store.message


class Statement(msgspec.Struct, frozen=True):
    """One SQL statement and its arguments; None if the SQL contains its values as literals."""

    sql: LiteralString | Composed
    arguments: tuple[Any, ...] | Mapping[str, Any] | None = ()


class LateStatement(msgspec.Struct, frozen=True):
    """A statement whose arguments are made when it is sent: in a batch they are not needed."""

    sql: LiteralString
    make: Callable[[], tuple[Any, ...]]

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The arguments, made anew."""
        return self.make()


class ArchiveRead(msgspec.Struct, frozen=True):
    """How a read goes on in the archive if its last row is a mark: see `archive_read_async`."""

    #: the stream, category or `$all` that is read
    target: str
    #: how many messages it returns at most; None for all
    most: int | None
    #: how to sign in to the archive's warehouse
    properties: Mapping[str, str] = {}
    correlation: str | None = None
    member: int | None = None
    size: int | None = None
    #: only the last message, of this type if there is one
    only_last: bool = False
    type: str | None = None


class ReplicaRead(msgspec.Struct, frozen=True):
    """That a read may go to the replica: see `replica`."""

    #: the reader has read everything before this position, so the log must not end before it
    resumes_at: int | None = None


class Stubs(msgspec.Struct, frozen=True):
    """Rows of archived messages have only some columns, and no id; the archive has the rest."""

    #: where the columns of a message begin
    first_column: int
    #: how to sign in to the archive's warehouse
    properties: Mapping[str, str] = {}
    #: what to run if the archive cannot be read, so that the operation was not made
    undo: Callable[[list[Row]], Statement] | None = None


class BatchGuard(msgspec.Struct, frozen=True):
    """The guard of a call: a type, name and value for each condition, and what it has seen."""

    types: Sequence[str]
    names: Sequence[str]
    values: Sequence[str]
    low: int
    seen: str


class BatchItem(msgspec.Struct, frozen=True):
    """What a batch needs of one call, and how to decode its positions in the stream and the log."""

    #: id, type, data and metadata of each
    messages: Sequence[tuple[UUID, str, str, str | None]]
    stream_name: str | None
    expected_version: int | None
    guard: BatchGuard | None
    decode: Callable[[list[int], list[int]], Any]
    #: the number of characters of its messages
    size: int


class Operation(msgspec.Struct, Generic[Result_co], frozen=True):
    """Statements to run in one transaction; the rows of the last are decoded into the result."""

    name: str
    statements: tuple[Statement | LateStatement, ...]
    decode: Callable[[list[Row]], Result_co]
    #: names and counts, for interceptors
    facts: Mapping[str, Any] = {}
    #: what waiters are woken for when it is committed: see `waiters.py`
    notifies: frozenset[str] = frozenset()
    #: of a read that may go on in the archive
    archive: ArchiveRead | Stubs | None = None
    #: of a read that a standby can answer, outside of transactions
    replica: ReplicaRead | None = None
    #: of a write that can be sent in a batch with others, outside of transactions
    item: BatchItem | None = None

    def with_archive(self, archive: ArchiveRead | Stubs) -> Self:
        """Return the same read, which goes on in the archive where it meets that."""
        return msgspec.structs.replace(self, archive=archive)

    def replicated(self, read: ReplicaRead | None) -> Self:
        """Return the same read, which may go to the replica unless `read` is None."""
        return msgspec.structs.replace(self, replica=read)


def call(
    name: str,
    sql: LiteralString | Composed,
    arguments: tuple[Any, ...] | Mapping[str, Any] | None,
    decode: Callable[[list[Row]], Result],
    *,
    notifies: frozenset[str] = frozenset(),
    **facts: Any,
) -> Operation[Result]:
    """Return an operation of one statement."""
    return Operation(name, (Statement(sql, arguments),), decode, facts, notifies)


def only_value(rows: list[Row]) -> Any:
    """Return the value of a result with one row and one column."""
    return rows[0][0]


def meets_archive(archive: ArchiveRead | Stubs, rows: list[Row]) -> bool:
    """Whether rows are missing, or parts of them, that the archive has."""
    if isinstance(archive, ArchiveRead):
        return bool(rows) and rows[-1][0] is None  # the last row is a mark, whose id is null
    id, global_position = archive.first_column, archive.first_column + GLOBAL_POSITION
    return any(one[id] is None and one[global_position] is not None for one in rows)
