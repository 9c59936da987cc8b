"""A store: everything Penstock does with one database.

An `AsyncStore` runs each operation on a connection of its pool. An `AsyncTransaction` has the
same operations and runs them on one connection, to be committed together. `store.using(connection)`
also has them, on your own psycopg connection and in the transaction that is open there.

Connecting installs or upgrades an embedded database, and never changes another.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Self, TypeVar

import psycopg

from penstock.admin.admin_async import AsyncAdmin
from penstock.database import connection_setup, pool_async
from penstock.database import edition as editions
from penstock.database.edition import SCHEMA_VERSION, Edition
from penstock.database.embedded import EmbeddedServer
from penstock.database.execute_async import execute
from penstock.database.install import start_embedded
from penstock.database.interceptor import Interceptor
from penstock.database.isolation import IsolationLevel, terms
from penstock.database.operation import Operation
from penstock.database.parts import check_parts, parts
from penstock.database.pool_async import AsyncPool
from penstock.errors import ValidationError
from penstock.log import boundary
from penstock.log.append import Appended
from penstock.log.context import LogContext, check_position
from penstock.log.decider import Command, Decider
from penstock.loops.concurrency_async import run_in_thread
from penstock.loops.retry import retry
from penstock.message.conditions import QueryCondition
from penstock.message.serializer import JsonSerializer, Serializer
from penstock.settings import Settings
from penstock.transaction_async import AsyncBorrowedConnection, AsyncOperations, AsyncTransaction

Result = TypeVar("Result")


async def connect_async(
    database_url: str | Settings | None = None,
    /,
    *,
    serializer: Serializer | None = None,
    interceptors: Sequence[Interceptor] = (),
    **options: Any,
) -> AsyncStore:
    """Return a store on the database at `database_url`.

    Without an address, `PENSTOCK_URL` is used. If it is not set, a PostgreSQL server is started in
    the folder `.penstock`. It stops when its last user leaves. `options` are the fields of
    `Settings`.
    """
    settings = Settings.load(database_url, **options)
    with ExitStack() as opened:
        if settings.embedded:
            server = await run_in_thread(
                lambda: start_embedded(settings), undo=EmbeddedServer.leave
            )
            opened.callback(server.leave)
            settings = replace(settings, database_url=server.url)
        context = LogContext(
            edition=await _detect(settings),
            serializer=serializer or JsonSerializer(),
            interceptors=tuple(interceptors),
            default_batch_size=settings.default_batch_size,
            sql_condition=settings.sql_condition,
        )
        connections = AsyncPool(settings, context.edition, context.interceptors)
        return AsyncStore(connections, context, opened.pop_all().close)


async def _detect(settings: Settings) -> Edition:
    """Return the edition of the database, or raise if this client cannot work with it."""
    where = settings.where()
    async with await pool_async.connect(settings) as connection:
        try:
            await connection.execute(*connection_setup.configuration(settings))
        except psycopg.errors.InvalidParameterValue:
            zone, expected = settings.session_timezone, "a time zone name that the server accepts"
            raise ValidationError("session_timezone", zone, expected) from None
        found = await execute(connection, editions.find(), where=where)
        editions.check_found(found, where)
        version = await execute(connection, editions.message_store_version(), where=where)
        editions.check_message_db(version, where)
        if found.has_penstock:
            last = await execute(connection, editions.last_installation(), where=where)
            if last:
                editions.check_installation(last, where)
            if last and last.version == SCHEMA_VERSION:
                compared = await execute(connection, parts(), where=where)
                check_parts(last, compared.of(found.edition), where)
        return found.edition


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
        self, connection: psycopg.AsyncConnection[Any], *, watermark: int | None = None
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
        self._pool.close()
        self._on_close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
