"""What can go wrong with connections and with the database itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from penstock.errors.base import PenstockError


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
class LockTableFull(UnavailableError):
    """PostgreSQL has no room for more locks: its table is shared by all transactions."""

    def __str__(self) -> str:
        return (
            f"{self.where}: PostgreSQL's lock table is full ({self.reason}): retry, let fewer "
            "transactions write to many streams or under many conditions at once, or raise "
            "max_locks_per_transaction and restart the server"
        )


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
class PreparedStatementLost(SetupError):
    """The server does not know a statement that was prepared, as behind a pooler."""


@dataclass(eq=False)
class UnsafeSequence(SetupError):
    """The log's sequence hands out positions in blocks, so the watermark could not be kept."""


@dataclass(eq=False)
class EmbeddedServerError(SetupError):
    """The embedded PostgreSQL could not be set up or started."""
