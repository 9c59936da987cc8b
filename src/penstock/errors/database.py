"""Connections and the database."""

from __future__ import annotations

from penstock.errors.base import PenstockError


class UnavailableError(PenstockError, retryable=True):
    """The database is unavailable at the moment.

    Retry after a pause, with the same message ids.
    """

    where: str
    reason: str
    template = "{where}: {reason}"


class DatabaseUnreachable(UnavailableError):
    """No connection could be made, or the one in use was lost.

    Retry after a pause. `where` and `reason` name the server and the cause.
    """

    template = "PostgreSQL at {where} cannot be reached: {reason}"


class AuthenticationFailed(UnavailableError, retryable=False):
    """The server refused the user or the password.

    Check the user, the password and `pg_hba.conf`.
    """

    template = "PostgreSQL at {where} refused the login: {reason}"


class PoolExhausted(UnavailableError):
    """The server is available, but all connections of the pool remained in use.

    Use shorter transactions, or a larger `pool_max_size`.
    """


class WriteQueueFull(UnavailableError):
    """So many calls wait to be written that no other may join them. Nothing was written.

    Retry after a pause, make fewer calls at once, or raise `max_queued_writes`.
    """


class CommandTimeout(UnavailableError, sqlstates=("57014",)):
    """A statement took longer than `command_timeout_ms`, or was cancelled.

    Find out which lock it waited for; use a smaller batch or a longer timeout.
    """


class TransactionTimeout(UnavailableError, sqlstates=("25P03", "25P04")):
    """A transaction took longer than its timeout and was rolled back.

    Do less in one transaction, or use a longer `timeout`.
    """


class LockTableFull(UnavailableError):
    """PostgreSQL's lock table, which all transactions share, is full. Nothing was written.

    Run fewer transactions at once that write to hundreds of streams, or raise
    `max_locks_per_transaction` and restart the server.
    """

    template = (
        "{where}: PostgreSQL's lock table is full ({reason}): retry, let fewer transactions write "
        "to many streams or under many conditions at once, or raise max_locks_per_transaction and "
        "restart the server"
    )


class ReplicaUnavailable(UnavailableError, sqlstates=("PS010",)):
    """The replica cannot be read now: it is too far behind, unreachable, or cancelled the read.

    Retry after a pause, or use `replica_fallback=True`: [Read replicas](scaling.md#read-replicas).
    """

    #: whether it has not replayed enough yet
    is_waiting: bool = False
    template = "the replica {where} cannot be read now: {reason}"


class SetupError(PenstockError):
    """This client cannot use this database as it is set up."""

    reason: str
    template = "{reason}"


class NotInstalled(SetupError):
    """The database contains no message store.

    Run `penstock init`, or call `penstock.install()`.
    """


class IncompatibleVersion(SetupError):
    """PostgreSQL, Message DB or Penstock's schema is too old or too new for this client.

    Upgrade what the message names.
    """


class UnsupportedEdition(SetupError):
    """A genuine Message DB does not support this.

    Run `penstock init`, which adds Penstock beside it: [Moving](moving.md).
    """


class WrongReplica(SetupError, sqlstates=("PS011",)):
    """The replica is not a standby of this primary: a primary, a promoted standby, another cluster.

    Pass the address of a streaming standby: [Read replicas](scaling.md#read-replicas).
    """

    where: str = ""
    template = "{where} cannot be the replica: {reason}"


class PreparedStatementLost(SetupError):
    """A prepared statement is missing: a pooler switched sessions, or it was deallocated.

    Use `prepared_statements=False`, or session pooling: [Poolers](tuning.md#poolers).
    """


class UnsafeSequence(SetupError):
    """The log's sequence has a cache, so messages would get positions out of order.

    Run the `alter sequence` statement from the message.
    """


class EmbeddedServerError(SetupError):
    """The embedded PostgreSQL could not be set up or started.

    The message ends with the server's log: [Embedded](embedded.md).
    """
