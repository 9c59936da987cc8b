"""A store for async code: what `store` has, to be awaited."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any, Self, TypeVar

import psycopg

from penstock.admin.admin import AsyncOperatorCalls
from penstock.database import pool_async
from penstock.database.edition import Edition
from penstock.database.execute import execute_async, in_transaction
from penstock.database.intercepted import intercepted_async
from penstock.database.operation import Operation
from penstock.database.transaction import IsolationLevel, Terms, terms
from penstock.errors import ValidationError
from penstock.groups.calls import AsyncGroupCalls
from penstock.log import boundary, declaring, write
from penstock.log.calls_async import AsyncLogOperations
from penstock.log.context import LogContext, check_position
from penstock.log.guard import Guard
from penstock.message.conditions import QueryCondition
from penstock.message.typed import TypedMessage
from penstock.outbox.outbox_async import AsyncJoins, AsyncOutbox
from penstock.queues.queue_async import AsyncQueue
from penstock.settings import Settings

Result = TypeVar("Result")
AsyncConnection = psycopg.AsyncConnection[Any]


class AsyncOperations(AsyncLogOperations, AsyncGroupCalls):
    """All that can be done in one database: on a store, in a transaction, on your connection."""

    def queue(self, name: str) -> AsyncQueue:
        """Return the queue of this name: the stream `queue-{name}`, read through sessions."""
        return AsyncQueue(self, name)

    @property
    def outbox(self) -> AsyncOutbox:
        """Messages to be handled later, surely."""
        return AsyncOutbox(self)

    @property
    def joins(self) -> AsyncJoins:
        """Know when a set of outbox messages is all done."""
        return AsyncJoins(self)


class AsyncTransaction(pool_async.AsyncOpenTransaction, AsyncOperations):
    """Operations that are committed together, or not at all. Made by `store.transaction()`."""

    def __init__(self, pool: pool_async.AsyncPool, terms: Terms, context: LogContext) -> None:
        super().__init__(pool, terms)
        self.context = context

    async def begin(self) -> Self:
        """Begin the transaction. `store.begin_transaction()` and `async with` do it for you."""
        await super().begin()
        self.context = replace(self.context, watermark=self.watermark)
        return self

    async def run(self, operation: Operation[Result]) -> Result:
        """Run an operation in this transaction and return its result."""
        return await intercepted_async(self.context.interceptors, operation, super().run)

    async def lock_categories(self, *categories: str) -> None:
        """Keep other writers out of these categories until the transaction ends.

        Call it first in a transaction that writes to hundreds of streams one by one.
        """
        await self.run(write.lock_categories(self.context, *categories))

    async def lock(self, guard: Guard | Iterable[QueryCondition]) -> None:
        """Keep others from deciding on the same boundary until the transaction ends.

        Call it first in a transaction that appends under a guard after other writes.
        """
        await self.declare_missing(declaring.watched_classes(guard))
        await self.run(boundary.lock_guard(self.context, guard))

    async def _run_apart(self, operation: Operation[Result]) -> Result:
        return await self._pool.run(operation)


class AsyncBorrowedConnection(AsyncOperations):
    """The store's operations on a psycopg connection of your own, in your transaction."""

    def __init__(self, connection: AsyncConnection, context: LogContext) -> None:
        self.connection = connection
        self.context = context

    def _remember(self, one: type[TypedMessage], *, indexed: bool) -> None:
        if not in_transaction(self.connection):  # else it may be undone
            super()._remember(one, indexed=indexed)

    async def run(self, operation: Operation[Result]) -> Result:
        """Run an operation on the connection and return its result. Commits nothing."""
        return await intercepted_async(
            self.context.interceptors, operation, lambda one: execute_async(self.connection, one)
        )


class AsyncStore(AsyncOperations, AsyncOperatorCalls):
    """A message store, for async code. Made by `await penstock.connect_async()`."""

    def __init__(
        self, pool: pool_async.AsyncPool, context: LogContext, on_close: Callable[[], None]
    ) -> None:
        self._pool = pool
        self.context = context
        self._on_close = on_close

    @property
    def settings(self) -> Settings:
        """The settings that the store was connected with."""
        return self._pool.settings

    @property
    def edition(self) -> Edition:
        """Whose functions the database has."""
        return self.context.edition

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._pool.where} ({self.edition.value})>"

    async def run(self, operation: Operation[Result]) -> Result:
        """Run an operation in a transaction of its own and return its result."""
        return await intercepted_async(self.context.interceptors, operation, self._pool.run)

    def transaction(
        self,
        isolation: IsolationLevel | str | None = None,
        *,
        read_only: bool = False,
        timeout: float | None = None,
    ) -> AsyncTransaction:
        """Return a transaction for an `async with` block: committed at its end, unless it raises.

        `timeout`, in seconds, is for the whole transaction; 30 unless the settings say otherwise.
        Above READ COMMITTED the reads of many streams are bounded by a watermark taken beforehand.
        """
        default_ms = self.settings.transaction_timeout_ms
        return AsyncTransaction(
            self._pool, terms(isolation, read_only, timeout, default_ms), self.context
        )

    async def begin_transaction(
        self,
        isolation: IsolationLevel | str | None = None,
        *,
        read_only: bool = False,
        timeout: float | None = None,
    ) -> AsyncTransaction:
        """Begin a transaction that you end yourself, with `commit()` or `rollback()`."""
        return await self.transaction(isolation, read_only=read_only, timeout=timeout).begin()

    async def with_transaction(
        self,
        work: Callable[[AsyncTransaction], Awaitable[Result]],
        isolation: IsolationLevel | str | None = None,
        *,
        read_only: bool = False,
        timeout: float | None = None,
    ) -> Result:
        """Call `work` with a transaction, commit it, and return what `work` returned."""
        async with self.transaction(isolation, read_only=read_only, timeout=timeout) as transaction:
            return await work(transaction)

    def using(
        self, connection: AsyncConnection, *, watermark: int | None = None
    ) -> AsyncBorrowedConnection:
        """Return the operations on a psycopg connection of your own, in your transaction.

        To read many streams above READ COMMITTED, pass as `watermark` what `category_head("$all")`
        returned before your transaction began.
        """
        if not isinstance(connection, psycopg.AsyncConnection):
            raise ValidationError("connection", connection, "a psycopg.AsyncConnection")
        if watermark is not None:
            check_position("watermark", watermark)
        return AsyncBorrowedConnection(connection, self.context.until(watermark))

    async def close(self) -> None:
        """Close all connections; leave the embedded server, which stops if nobody else uses it."""
        await self._pool.close()
        self._on_close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
