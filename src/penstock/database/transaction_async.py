"""Begin, use and end a transaction on one connection of the pool."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, LiteralString, Self, TypeVar, cast

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus

from penstock.database.execute_async import execute
from penstock.database.interceptor import intercepted
from penstock.database.isolation import Terms, watermark_before
from penstock.database.operation import Operation
from penstock.database.pool_async import AsyncPool
from penstock.database.server_errors import typed_errors
from penstock.errors import (
    DatabaseUnreachable,
    TransactionAborted,
    TransactionClosed,
    TransactionTimeout,
    ValidationError,
)
from penstock.message import check_text

Result = TypeVar("Result")
Connection = psycopg.AsyncConnection[Any]


class AsyncOpenTransaction:
    """A transaction, with one connection of the pool until it ends."""

    def __init__(self, pool: AsyncPool, terms: Terms) -> None:
        self._pool = pool
        self._terms = terms
        self._connection: Connection | None = None
        self._deadline = 0.0
        self.watermark: int | None = None

    async def begin(self) -> Self:
        """Begin the transaction, on another connection if the first is broken."""
        if self._connection is not None:
            raise ValidationError("transaction", self, "a transaction that is not open")
        connection = await self._pool.take()
        try:
            await self._begin(connection)
        except DatabaseUnreachable:
            self._pool.drop_idle()
            await self._begin(await self._pool.take())
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
            self._deadline = self._terms.deadline()
            with typed_errors(self._pool.where):
                await connection.execute(self._terms.begin(connection.info.server_version))
        except BaseException:
            self._pool.give_back(connection)
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
            self._pool.give_back(connection)

    async def _check_usable(self) -> None:
        if self._connection is None:
            raise TransactionClosed
        if time.monotonic() >= self._deadline:
            await self.rollback()
            raise TransactionTimeout(self._pool.where, self._terms.expired())
        if self._connection.pgconn.transaction_status == TransactionStatus.IDLE:
            await self.rollback()  # the caller's own SQL has ended it
            raise TransactionClosed
