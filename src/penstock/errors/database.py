"""Connections and the database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from penstock.errors.base import PenstockError


@dataclass(eq=False)
class UnavailableError(PenstockError):
    """The database is unavailable at the moment.

    Retry after a pause, with the same message ids.
    """

    retryable: ClassVar[bool] = True

    where: str
    reason: str

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


@dataclass(eq=False)
class DatabaseUnreachable(UnavailableError):
    """No connection could be made, or the one in use was lost.

    Retry after a pause. `where` and `reason` name the server and the cause.
    """

    def __str__(self) -> str:
        return f"PostgreSQL at {self.where} cannot be reached: {self.reason}"


@dataclass(eq=False)
class AuthenticationFailed(UnavailableError):
    """The server refused the user or the password.

    Check the user, the password and `pg_hba.conf`.
    """

    retryable: ClassVar[bool] = False

    def __str__(self) -> str:
        return f"PostgreSQL at {self.where} refused the login: {self.reason}"


@dataclass(eq=False)
class PoolExhausted(UnavailableError):
    """The server is available, but all connections of the pool remained in use.

    Use shorter transactions, or a larger `pool_max_size`.
    """


@dataclass(eq=False)
class CommandTimeout(UnavailableError):
    """A statement took longer than `command_timeout_ms`, or was cancelled.

    Find out which lock it waited for; use a smaller batch or a longer timeout.
    """

    sqlstates: ClassVar[tuple[str, ...]] = ("57014",)


@dataclass(eq=False)
class TransactionTimeout(UnavailableError):
    """A transaction took longer than its timeout and was rolled back.

    Do less in one transaction, or use a longer `timeout`.
    """

    sqlstates: ClassVar[tuple[str, ...]] = ("25P03", "25P04")


@dataclass(eq=False)
class LockTableFull(UnavailableError):
    """PostgreSQL's lock table, which all transactions share, is full. Nothing was written.

    Run fewer transactions at once that write to hundreds of streams, or raise
    `max_locks_per_transaction` and restart the server.
    """

    def __str__(self) -> str:
        return (
            f"{self.where}: PostgreSQL's lock table is full ({self.reason}): retry, let fewer "
            "transactions write to many streams or under many conditions at once, or raise "
            "max_locks_per_transaction and restart the server"
        )


@dataclass(eq=False)
class SetupError(PenstockError):
    """This client cannot use this database as it is set up.

    See the errors below.
    """

    reason: str

    def __str__(self) -> str:
        return self.reason


@dataclass(eq=False)
class NotInstalled(SetupError):
    """The database contains no message store.

    Run `penstock init`, or call `penstock.install()`.
    """


@dataclass(eq=False)
class IncompatibleVersion(SetupError):
    """PostgreSQL, Message DB or Penstock's schema is too old or too new for this client.

    Upgrade what the message names.
    """


@dataclass(eq=False)
class UnsupportedEdition(SetupError):
    """A genuine Message DB does not support this.

    Run `penstock init`, which adds Penstock beside it: [Moving](moving.md).
    """


@dataclass(eq=False)
class PreparedStatementLost(SetupError):
    """A prepared statement is missing: a pooler switched sessions, or it was deallocated.

    Use `prepared_statements=False`, or session pooling: [Poolers](tuning.md#poolers).
    """


@dataclass(eq=False)
class UnsafeSequence(SetupError):
    """The log's sequence has a cache, so messages would get positions out of order.

    Run the `alter sequence` statement from the message.
    """


@dataclass(eq=False)
class EmbeddedServerError(SetupError):
    """The embedded PostgreSQL could not be set up or started.

    The message ends with the server's log: [Embedded](embedded.md).
    """
