"""What can go wrong, named by what happened.

    PenstockError
    ├── ValidationError            bad input: refused before anything was sent
    ├── ConcurrencyError           somebody else was first: decide again and retry
    │   ├── WrongExpectedVersion
    │   ├── TransactionConflict    a deadlock or serialization failure, seen by PostgreSQL
    │   └── CategoryBusy           a bulk write needs a category to itself
    ├── DuplicateMessageId         the id belongs to another message
    ├── DecodingError              a stored message cannot be read
    ├── ConditionNotActivated      SQL conditions are switched off
    ├── WatermarkRequired          a snapshot is too old to read many streams from
    ├── TransactionClosed          the transaction has ended already
    ├── TransactionAborted         an earlier failure keeps it from committing
    ├── StoreClosed                the store was closed
    ├── UnavailableError           the database cannot be used at the moment
    │   ├── DatabaseUnreachable
    │   ├── AuthenticationFailed
    │   ├── PoolExhausted
    │   ├── CommandTimeout
    │   └── TransactionTimeout
    └── SetupError                 this database and this client do not fit
        ├── NotInstalled
        ├── IncompatibleVersion
        ├── UnsupportedEdition     only a database that Penstock set up can do this
        ├── UnsafeSequence         the log's sequence has a cache
        └── EmbeddedServerError

Each error carries its facts as attributes and says whether a retry may help (`retryable`). Errors
of the server that are not listed here reach the caller as psycopg raised them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar
from uuid import UUID

import psycopg


@dataclass(eq=False)
class PenstockError(Exception):
    """The base of every error that Penstock raises."""

    retryable: ClassVar[bool] = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by facts, so that an error can leave a worker process."""
        return _rebuild, (type(self), {f.name: getattr(self, f.name) for f in fields(self)})


def _rebuild(error_class: type[PenstockError], facts: dict[str, Any]) -> PenstockError:
    return error_class(**facts)


@dataclass(eq=False)
class ValidationError(PenstockError, ValueError):
    """Bad input, refused before anything was sent."""

    name: str
    value: object
    expected: str

    def __str__(self) -> str:
        return f"{self.name} must be {self.expected}; got {shown(self.value)}"


def shown(value: object, limit: int = 120) -> str:
    """Return `repr(value)`, shortened, for an error message."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


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
class ConditionNotActivated(PenstockError):
    """A SQL condition was given, and they are switched off."""

    condition: str

    def __str__(self) -> str:
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
class TransactionClosed(PenstockError):
    """The transaction was committed, rolled back or lost already."""

    def __str__(self) -> str:
        return "this transaction has ended already: begin another one"


@dataclass(eq=False)
class TransactionAborted(PenstockError):
    """A statement failed, so the transaction was rolled back when it should have been committed."""

    def __str__(self) -> str:
        return (
            "an earlier statement of this transaction failed, so all of it was rolled back: "
            "use a savepoint around a statement that may fail"
        )


@dataclass(eq=False)
class StoreClosed(PenstockError):
    """The store was closed and cannot be used again."""

    where: str

    def __str__(self) -> str:
        return f"this store ({self.where}) was closed: connect again"


@dataclass(eq=False)
class UnavailableError(PenstockError):
    """The database cannot be used at the moment."""

    retryable: ClassVar[bool] = True

    where: str
    reason: str

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


@dataclass(eq=False)
class DatabaseUnreachable(UnavailableError):
    """No connection could be made, or the one in use was lost."""

    def __str__(self) -> str:
        return f"PostgreSQL at {self.where} cannot be reached: {self.reason}"


@dataclass(eq=False)
class AuthenticationFailed(UnavailableError):
    """The server refused this user or password."""

    retryable: ClassVar[bool] = False

    def __str__(self) -> str:
        return f"PostgreSQL at {self.where} refused the login: {self.reason}"


@dataclass(eq=False)
class PoolExhausted(UnavailableError):
    """The server answers, but all connections of the pool stayed in use."""


@dataclass(eq=False)
class CommandTimeout(UnavailableError):
    """One statement took longer than `command_timeout_ms` and was cancelled on the server."""


@dataclass(eq=False)
class TransactionTimeout(UnavailableError):
    """The transaction took longer than its timeout and was rolled back."""


@dataclass(eq=False)
class SetupError(PenstockError):
    """This database and this client do not fit together."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@dataclass(eq=False)
class NotInstalled(SetupError):
    """The database holds no message store."""


@dataclass(eq=False)
class IncompatibleVersion(SetupError):
    """The database holds a message store of a version this client does not speak."""


@dataclass(eq=False)
class UnsupportedEdition(SetupError):
    """A genuine Message DB cannot do this until `penstock init` has added to it."""


@dataclass(eq=False)
class UnsafeSequence(SetupError):
    """The log's sequence hands out positions in blocks, so the watermark could not be kept."""


@dataclass(eq=False)
class EmbeddedServerError(SetupError):
    """The embedded PostgreSQL could not be set up or started."""


_BY_CODE: Mapping[str, type[PenstockError]] = {
    "PS001": WrongExpectedVersion,
    "PS002": DuplicateMessageId,
    "PS004": CategoryBusy,
}

# Genuine Message DB has no code of its own for this one, nor a detail: its text is all there is.
_MESSAGE_DB_VERSION = re.compile(
    r"Wrong expected version: (?P<expected>-?\d+) "
    r"\(Stream: (?P<stream_name>.*), Stream Version: (?P<actual>-?\d+)\)$",
    re.DOTALL,
)

_TRANSACTION_CONFLICTS = {"40001", "40P01", "55P03"}


def translate(error: psycopg.Error, where: str) -> Exception:
    """Return the Penstock error that the server's error stands for, or the error itself."""
    diag = error.diag
    code, facts = _code_and_facts(error)
    if error_class := _BY_CODE.get(code or ""):
        return error_class(**facts)
    if code == "PS003":
        return WatermarkRequired(diag.message_primary or str(error))
    if code == "PS008":
        return ConditionNotActivated("")
    if code == "23505" and diag.constraint_name == "messages_id":
        return DuplicateMessageId(_key_value(diag.message_detail))
    if code == "23505" and diag.constraint_name == "messages_stream":
        return TransactionConflict("another transaction wrote to the stream at the same time")
    if code == "P0001" and (match := _MESSAGE_DB_VERSION.match(diag.message_primary or "")):
        return WrongExpectedVersion(
            match["stream_name"], int(match["expected"]), int(match["actual"])
        )
    if code in _TRANSACTION_CONFLICTS:
        return TransactionConflict(diag.message_primary or str(error))
    if code == "57014":
        return CommandTimeout(where, diag.message_primary or str(error))
    if code in ("25P03", "25P04"):
        return TransactionTimeout(where, diag.message_primary or str(error))
    if is_lost_connection(error):
        return DatabaseUnreachable(where, first_line(error))
    return error


def is_lost_connection(error: psycopg.Error) -> bool:
    """Whether the error says that the connection, and not the statement, is at fault."""
    if error.sqlstate is None:
        return isinstance(error, psycopg.OperationalError)
    return error.sqlstate.startswith(("08", "57P"))


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, or its name if it has none."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _code_and_facts(error: psycopg.Error) -> tuple[str | None, dict[str, Any]]:
    try:
        facts = json.loads(error.diag.message_detail or "")
        return facts.pop("code", error.sqlstate), facts
    except (ValueError, AttributeError, TypeError):
        return error.sqlstate, {}


def _key_value(detail: str | None) -> str:
    """Return the value in PostgreSQL's text `Key (id)=(value) already exists`."""
    return (detail or "").partition("=(")[2].partition(")")[0]
