"""What runs operations: a store, a transaction, or a psycopg connection of your own.

Everything that works on the log (queues, groups, the outbox, consumers) holds one of these and
sends it operations.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

from penstock.database.operation import Operation
from penstock.log.context import LogContext

Result = TypeVar("Result")


class AsyncRuns(Protocol):
    """Runs operations, each in one round trip."""

    context: LogContext

    async def run(self, operation: Operation[Result], /) -> Result:
        """Run an operation and return its result."""

    async def run_apart(self, operation: Operation[Result], /) -> Result:
        """Run an operation outside of the transaction, where one is open and it is ours."""

    @property
    def may_be_undone(self) -> bool:
        """Whether what `run_apart` did is part of a transaction that may be rolled back."""


class AsyncRunsTransactions(AsyncRuns, Protocol):
    """Runs operations, and several of them in one transaction: a store."""

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """Return a transaction for an `async with` block."""
