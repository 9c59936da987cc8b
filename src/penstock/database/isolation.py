"""The terms of a transaction: isolation level, access mode and timeout.

The promise: a transaction ends on the server within its timeout, even if the client hangs. From
PostgreSQL 17 on, the server limits the whole transaction. Before that, the server limits each
statement and each pause, and the client raises an error when the time is over.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from penstock.database.operation import Operation, call, only_value
from penstock.errors import ValidationError
from penstock.loops.durations import Duration, seconds

#: seconds; the server's timeouts have about this limit
LONGEST_TIMEOUT = 2_000_000.0


class IsolationLevel(Enum):
    """The isolation level of a transaction, as in PostgreSQL."""

    READ_UNCOMMITTED = "read uncommitted"
    READ_COMMITTED = "read committed"
    REPEATABLE_READ = "repeatable read"
    SERIALIZABLE = "serializable"

    @property
    def keeps_its_snapshot(self) -> bool:
        """Whether all statements of the transaction see the same snapshot."""
        return self in (IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE)


@dataclass(frozen=True, slots=True)
class Terms:
    """The isolation level, access mode and timeout of a transaction."""

    isolation: IsolationLevel
    read_only: bool
    timeout_ms: int

    def begin(self, server_version: int) -> bytes:
        """Return the statements that begin the transaction, to be sent together."""
        access = "read only" if self.read_only else ""  # else the session's default
        begin = f"begin isolation level {self.isolation.value} {access}"
        return "; ".join([begin, *limits(server_version, self.timeout_ms)]).encode()


def limits(server_version: int, timeout_ms: int) -> list[str]:
    """Return the statements that limit the open transaction on the server."""
    bounds = ["statement_timeout", "idle_in_transaction_session_timeout"]
    if server_version >= 170_000:
        bounds = ["transaction_timeout"]
    return [f"set local {bound} = {timeout_ms}" for bound in bounds]


def watermark_before() -> Operation[int]:
    """Read the watermark before a transaction with a fixed snapshot begins."""
    return call("watermark", "select penstock.watermark()", (), only_value)


def terms(
    isolation: IsolationLevel | str | None,
    read_only: bool,
    timeout: Duration | None,
    default_ms: int,
    most_to_write: float | None = None,
) -> Terms:
    """Return the checked terms of a transaction.

    `most_to_write` limits a transaction that may write, in seconds.
    """
    timeout_ms = default_ms
    if timeout is not None:
        timeout_ms = int(seconds("timeout", timeout, least=0.001, most=LONGEST_TIMEOUT) * 1000)
    wanted = isolation.lower().replace("_", " ") if isinstance(isolation, str) else isolation
    try:
        level = IsolationLevel.READ_COMMITTED if wanted is None else IsolationLevel(wanted)
    except ValueError:
        known = ", ".join(repr(level.value) for level in IsolationLevel)
        raise ValidationError("isolation", isolation, f"one of {known}") from None
    if most_to_write is not None and not read_only:
        timeout_ms = min(timeout_ms, int(most_to_write * 1000))
    return Terms(level, bool(read_only), timeout_ms)
