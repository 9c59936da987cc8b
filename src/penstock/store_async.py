"""A store: everything Penstock does with one database.

An `AsyncStore` runs each operation on a connection of its pool. An `AsyncTransaction` has the
same operations and runs them on one connection, to be committed together. `store.using(connection)`
also has them, on your own psycopg connection and in the transaction that is open there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any, Self, TypeVar, cast

import psycopg

from penstock.admin.admin_async import AsyncAdmin
from penstock.database.edition import Edition
from penstock.database.execute_async import execute
from penstock.database.interceptor import intercepted
from penstock.database.isolation import IsolationLevel, Terms, terms
from penstock.database.operation import Operation
from penstock.database.pool_async import AsyncPool
from penstock.database.server_errors import in_transaction
from penstock.database.transaction_async import AsyncOpenTransaction
from penstock.errors import ValidationError
from penstock.groups.groups_async import AsyncGroups
from penstock.log import boundary, write
from penstock.log.append import Appended
from penstock.log.calls_async import AsyncLogCalls
from penstock.log.context import LogContext, check_position
from penstock.log.decider import Command, Decider
from penstock.log.declare_async import declare_missing
from penstock.log.guard import Guard
from penstock.loops.retry import retry
from penstock.message.conditions import QueryCondition
from penstock.outbox.joins_async import AsyncJoins
from penstock.outbox.outbox_async import AsyncOutbox
from penstock.queues.queue_async import AsyncQueue
from penstock.settings import Settings

Result = TypeVar("Result")
AsyncConnection = psycopg.AsyncConnection[Any]


class AsyncOperations(AsyncLogCalls):
    """The operations of a store, a transaction or a connection of your own."""

    def queue(self, name: str) -> AsyncQueue:
        """Return the queue of this name: the stream `queue-{name}`, read through sessions."""
        return AsyncQueue(self, name)

    @property
    def groups(self) -> AsyncGroups:
        """Partitioned consumer groups."""
        return AsyncGroups(self)

    @property
    def outbox(self) -> AsyncOutbox:
        """The transactional outbox."""
        return AsyncOutbox(self)

    @property
    def joins(self) -> AsyncJoins:
        """Joins: messages that follow when a set of outbox messages is finished."""
        return AsyncJoins(self)


class AsyncTransaction(AsyncOpenTransaction, AsyncOperations):
    """Operations that are committed together, or not at all. Created by `store.transaction()`."""

    def __init__(self, pool: AsyncPool, terms: Terms, context: LogContext) -> None:
        super().__init__(pool, terms)
        self.context = context

    async def begin(self) -> Self:
        """Begin the transaction. `store.begin_transaction()` and `async with` do it for you."""
        await super().begin()
        self.context = replace(self.context, watermark=self.watermark)
        return self

    async def lock_categories(self, *categories: str) -> None:
        """Block other writers to these categories until the transaction ends.

        Call it first in a transaction that writes to hundreds of streams one by one.
        """
        await self.run(write.lock_categories(self.context, *categories))

    async def lock(self, guard: Guard | Iterable[QueryCondition]) -> None:
        """Block other decisions on the same boundary until the transaction ends.

        Call it first in a transaction that appends under a guard after other writes.
        """
        await declare_missing(self, boundary.watched_classes(guard))
        await self.run(boundary.lock_guard(self.context, guard))


class AsyncBorrowedConnection(AsyncOperations):
    """The store's operations on a psycopg connection of your own, in your transaction."""

    def __init__(self, connection: AsyncConnection, context: LogContext) -> None:
        self.connection = connection
        self.context = context

    @property
    def may_be_undone(self) -> bool:
        """Whether the connection has a transaction open, which may be rolled back."""
        return in_transaction(self.connection)

    async def run(self, operation: Operation[Result], /) -> Result:
        """Run an operation on the connection and return its result. Commits nothing."""
        with intercepted(self.context.interceptors, operation.name, operation.facts) as call:
            call.result = await execute(self.connection, operation)
        return cast(Result, call.result)


class AsyncStore(AsyncOperations):
    """A message store, for async code. Created by `await penstock.connect_async()`."""

    def __init__(self, pool: AsyncPool, context: LogContext, on_close: Callable[[], None]) -> None:
        self._pool = pool
        self.context = context
        self._on_close = on_close

    @property
    def settings(self) -> Settings:
        """The settings that the store was connected with."""
        return self._pool.settings

    @property
    def edition(self) -> Edition:
        """The edition: Penstock, Penstock beside Message DB, or genuine Message DB."""
        return self.context.edition

    @property
    def admin(self) -> AsyncAdmin:
        """Operators' calls: list and move readers, remove old messages, see parked ones."""
        return AsyncAdmin(self)

    @property
    def is_closed(self) -> bool:
        """Whether the store is closed."""
        return self._pool.is_closed

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._pool.where} ({self.edition.value})>"

    async def run(self, operation: Operation[Result]) -> Result:
        """Run an operation in a transaction of its own and return its result."""
        return await self._pool.run(operation)

    async def decide(
        self,
        decider: Decider[Any, Command],
        command: Command,
        conditions: Iterable[QueryCondition],
        *,
        attempts: int = 10,
    ) -> Appended | None:
        """Decide a command on the messages that match, and append the outcome under their guard.

        Returns None if the decider returned no events. If another writer appended to the boundary
        meanwhile, reads and decides again, up to `attempts` times in all. A transaction has one
        attempt: a conflict ends it.
        """
        wanted = boundary.as_guard(conditions).conditions
        return await retry(attempts=attempts)(super().decide)(decider, command, wanted)

    def transaction(
        self,
        isolation: IsolationLevel | str | None = None,
        *,
        read_only: bool = False,
        timeout: float | None = None,
    ) -> AsyncTransaction:
        """Return a transaction for an `async with` block: committed at its end, unless it raises.

        `timeout`, in seconds, limits the whole transaction. It defaults to the setting
        `transaction_timeout_ms`. Above READ COMMITTED, reads of many streams end at a watermark
        that is read before the transaction begins.
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
        """Call `work` with a transaction, commit it, and return the result of `work`."""
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
        """Close all connections. An embedded server stops if this was its last user."""
        await self._pool.close()
        self._on_close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
