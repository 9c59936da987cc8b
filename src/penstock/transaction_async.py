"""The operations of a store, in a transaction of its own or on a connection of yours."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, LiteralString, Self, TypeVar, cast

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus

from penstock.database.execute_async import execute
from penstock.database.interceptor import intercepted
from penstock.database.isolation import Terms, watermark_before
from penstock.database.operation import Operation
from penstock.database.pool_async import AsyncPool
from penstock.database.server_errors import in_transaction, typed_errors
from penstock.errors import (
    DatabaseUnreachable,
    TransactionAborted,
    TransactionClosed,
    TransactionTimeout,
    ValidationError,
)
from penstock.groups.groups_async import AsyncGroups
from penstock.log import boundary, write
from penstock.log.calls_async import AsyncLogCalls
from penstock.log.context import LogContext
from penstock.log.declare_async import declare_missing
from penstock.log.guard import Guard
from penstock.message import check_text
from penstock.message.conditions import QueryCondition
from penstock.outbox.joins_async import AsyncJoins
from penstock.outbox.outbox_async import AsyncOutbox
from penstock.queues.queue_async import AsyncQueue

Result = TypeVar("Result")
Connection = psycopg.AsyncConnection[Any]


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


class AsyncTransaction(AsyncOperations):
    """Operations that are committed together, or not at all. Created by `store.transaction()`."""

    def __init__(self, pool: AsyncPool, terms: Terms, context: LogContext) -> None:
        self.context = context
        self._pool = pool
        self._terms = terms
        self._connection: Connection | None = None
        self._deadline = 0.0
        self._notifies: set[str] = set()  # at the commit
        self.watermark: int | None = None

    async def begin(self) -> Self:
        """Begin the transaction. `store.begin_transaction()` and `async with` do it for you."""
        if self._connection is not None:
            raise ValidationError("transaction", self, "a transaction that is not open")
        connection = await self._pool.take()
        try:
            await self._begin(connection)
        except DatabaseUnreachable:  # once more, on another connection
            self._pool.drop_idle()
            await self._begin(await self._pool.take())
        self._notifies = set()
        self.context = replace(self.context, watermark=self.watermark)
        return self

    @property
    def connection(self) -> Connection:
        """The psycopg connection, for SQL of your own inside this transaction."""
        if self._connection is None:
            raise TransactionClosed
        return self._connection

    @property
    def is_active(self) -> bool:
        """Whether the transaction can still be used: open, connected, and within its timeout."""
        return (
            self._connection is not None
            and not self._connection.closed
            and self._connection.info.transaction_status is not TransactionStatus.IDLE
            and time.monotonic() < self._deadline
        )

    async def run(self, operation: Operation[Result]) -> Result:
        """Run an operation in this transaction and return its result."""
        with intercepted(self._pool.interceptors, operation.name, operation.facts) as call:
            await self._check_usable()
            try:
                call.result = await execute(self.connection, operation, where=self._pool.where)
            except DatabaseUnreachable:
                await self._check_usable()  # the server may have ended it at its timeout
                raise
        self._notifies |= operation.notifies
        return cast(Result, call.result)

    async def run_apart(self, operation: Operation[Result]) -> Result:
        """Run an operation on another connection, in a transaction of its own."""
        return await self._pool.run(operation)

    async def commit(self) -> None:
        """Commit the transaction, or raise; then nothing was written.

        Only if the connection is lost during the commit, the outcome is unknown: retry the
        transaction with the same message ids.
        """
        await self._check_usable()
        if await self._end("commit") != "COMMIT":
            raise TransactionAborted
        self._pool.notify(frozenset(self._notifies))

    async def rollback(self) -> None:
        """Roll back the transaction. Does nothing if it has already ended."""
        if self._connection is not None:
            # after a lost connection or a timeout, the server rolls back
            with suppress(DatabaseUnreachable, TransactionTimeout):
                await self._end("rollback")

    async def savepoint(self, name: str) -> None:
        """Set a savepoint for `rollback_to_savepoint`."""
        await self._control(sql.SQL("savepoint {}"), name)

    async def rollback_to_savepoint(self, name: str) -> None:
        """Roll back to the savepoint, which stays."""
        await self._control(sql.SQL("rollback to savepoint {}"), name)

    async def release_savepoint(self, name: str) -> None:
        """Remove a savepoint, and keep what was written since."""
        await self._control(sql.SQL("release savepoint {}"), name)

    @asynccontextmanager
    async def nested(self) -> AsyncIterator[Self]:
        """Return a block with its own savepoint: if it raises, only the block is rolled back."""
        await self._check_usable()
        with typed_errors(self._pool.where):
            async with self.connection.transaction():
                yield self

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

    async def __aenter__(self) -> Self:
        return await self.begin()

    async def __aexit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        if error_type is not None:
            await self.rollback()
        elif self._connection is not None:
            await self.commit()

    async def _begin(self, connection: Connection) -> None:
        try:
            if self._terms.isolation.keeps_its_snapshot and self._pool.edition.has_watermark:
                self.watermark = await execute(
                    connection, watermark_before(), where=self._pool.where
                )
            # not after the server's deadline, so that a late call always raises TransactionTimeout
            self._deadline = time.monotonic() + self._terms.timeout_ms / 1000
            with typed_errors(self._pool.where):
                await connection.execute(self._terms.begin(connection.info.server_version))
        except BaseException:
            self._pool.put(connection)
            raise
        self._connection = connection

    async def _control(self, statement: sql.SQL, name: str) -> None:
        check_text("savepoint", name)
        await self._check_usable()
        with typed_errors(self._pool.where):
            await self.connection.execute(statement.format(sql.Identifier(name)))

    async def _end(self, how: LiteralString) -> str | None:
        connection, self._connection = self.connection, None
        try:
            with typed_errors(self._pool.where):
                cursor = await connection.execute(how)
                return cursor.statusmessage
        finally:
            self._pool.put(connection)

    async def _check_usable(self) -> None:
        connection = self.connection
        if time.monotonic() >= self._deadline:
            await self.rollback()
            limit = self._terms.timeout_ms / 1000
            reason = f"the transaction took longer than {limit:g} s and was rolled back"
            raise TransactionTimeout(self._pool.where, reason)
        if connection.pgconn.transaction_status == TransactionStatus.IDLE:
            await self.rollback()  # the caller's own SQL has ended it
            raise TransactionClosed


class AsyncBorrowedConnection(AsyncOperations):
    """The store's operations on a psycopg connection of your own, in your transaction."""

    def __init__(self, connection: Connection, context: LogContext) -> None:
        self.connection = connection
        self.context = context

    @property
    def may_be_undone(self) -> bool:
        """Whether the connection has a transaction open, which may be rolled back."""
        return in_transaction(self.connection)

    async def run(self, operation: Operation[Result], /) -> Result:
        """Run an operation on the connection and return its result. Commits nothing.

        What you commit later wakes no waiters: they find it at their next safety look.
        """
        with intercepted(self.context.interceptors, operation.name, operation.facts) as call:
            call.result = await execute(self.connection, operation)
        if operation.notifies and not self.may_be_undone:  # committed, not by you later
            self.context.notify(operation.notifies)
        return cast(Result, call.result)
