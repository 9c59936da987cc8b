"""The protocols of stores, transactions and borrowed connections, which run operations.

Queues, groups, the outbox and consumers hold one of these and pass operations to it.
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

from penstock.database.operation import Operation
from penstock.log.context import LogContext

Result = TypeVar("Result")


class AsyncRuns(Protocol):
    """Runs operations, each in one round trip."""

    context: LogContext

    @abstractmethod
    async def run(self, operation: Operation[Result], /) -> Result:
        """Run an operation and return its result."""

    async def run_apart(self, operation: Operation[Result], /) -> Result:
        """Run an operation outside the open transaction, unless that is the caller's own."""
        return await self.run(operation)

    @property
    def may_be_undone(self) -> bool:
        """Whether what `run_apart` did is part of a transaction that may be rolled back."""
        return False


class AsyncRunsTransactions(AsyncRuns, Protocol):
    """Runs operations, and several of them in one transaction: a store."""

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """Return a transaction for an `async with` block."""
