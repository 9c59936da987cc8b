"""What a transaction is begun with, and how its end is judged: shared by blocking and async code.

The promise: a transaction ends, on the server, within its timeout, whatever its client does. From
PostgreSQL 17 on the server itself counts the whole transaction. Before that the server bounds each
statement and each pause, and the client refuses to go on once the time is up.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import Enum

from psycopg import sql

from penstock.database.operation import Operation, call, only_value
from penstock.errors import ValidationError

_HAS_TRANSACTION_TIMEOUT = 170_000


class IsolationLevel(Enum):
    """How much of what others commit a transaction sees."""

    READ_UNCOMMITTED = "read uncommitted"
    READ_COMMITTED = "read committed"
    REPEATABLE_READ = "repeatable read"
    SERIALIZABLE = "serializable"

    @property
    def keeps_its_snapshot(self) -> bool:
        """Whether later statements see no more than the first one."""
        return self in (IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE)


@dataclass(frozen=True, slots=True)
class Terms:
    """How a transaction was begun."""

    isolation: IsolationLevel
    read_only: bool
    timeout_ms: int

    def begin(self, server_version: int) -> sql.Composed:
        """Return the statements that begin it, to be sent in one go."""
        access = sql.SQL("read only" if self.read_only else "")  # else as the session is set
        bounds = (
            ("transaction_timeout",)
            if server_version >= _HAS_TRANSACTION_TIMEOUT
            else ("statement_timeout", "idle_in_transaction_session_timeout")
        )
        return sql.SQL("; ").join(
            [
                sql.SQL("begin isolation level {} {}").format(
                    sql.SQL(self.isolation.value), access
                ),
                *(
                    sql.SQL("set local {} = {}").format(sql.SQL(bound), self.timeout_ms)
                    for bound in bounds
                ),
            ]
        )

    def expired(self) -> str:
        """Return the reason to give when time was up."""
        return f"the transaction took longer than {self.timeout_ms / 1000:g} s and was rolled back"

    def deadline(self) -> float:
        """Return the moment, on the monotonic clock, at which time is up."""
        return time.monotonic() + self.timeout_ms / 1000


def watermark_before() -> Operation[int]:
    """Take the watermark for a transaction that will keep its snapshot, before it begins."""
    return call("watermark", "select penstock.watermark()", (), only_value)


def terms(
    isolation: IsolationLevel | str | None, read_only: bool, timeout: float | None, default_ms: int
) -> Terms:
    """Return the checked terms of a transaction. `timeout` is in seconds."""
    if timeout is not None and not _is_time(timeout):
        raise ValidationError("timeout", timeout, "a number of seconds above 0")
    timeout_ms = default_ms if timeout is None else max(1, int(timeout * 1000))
    return Terms(_isolation_level(isolation), bool(read_only), timeout_ms)


def _is_time(value: object) -> bool:
    """Whether the value is a number of seconds that the server can count."""
    return isinstance(value, int | float) and value is not True and 0 < value < 2_000_000


def _isolation_level(value: IsolationLevel | str | None) -> IsolationLevel:
    if value is None:
        return IsolationLevel.READ_COMMITTED
    if isinstance(value, IsolationLevel):
        return value
    try:
        return IsolationLevel(value.lower().replace("_", " "))
    except (ValueError, AttributeError, TypeError):
        known = ", ".join(repr(level.value) for level in IsolationLevel)
        raise ValidationError("isolation", value, f"one of {known}") from None
