"""A store: everything Penstock does with one database.

An `AsyncStore` runs each operation on a connection of its pool. An `AsyncTransaction` has the
same operations and runs them on one connection, to be committed together. `store.using(connection)`
also has them, on your own psycopg connection and in the transaction that is open there.

Connecting installs or upgrades an embedded database, and never changes another.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any, Self, TypeVar
from uuid import UUID

import psycopg

from penstock.admin import awaited
from penstock.admin.admin_async import AsyncAdmin
from penstock.admin.wait_until_async import wait_for_reader, wait_for_task
from penstock.database import connection_setup, pool_async
from penstock.database import edition as editions
from penstock.database.edition import SCHEMA_VERSION, Edition
from penstock.database.embedded import EmbeddedServer
from penstock.database.execute_async import execute
from penstock.database.install import start_embedded
from penstock.database.interceptor import Interceptor
from penstock.database.isolation import IsolationLevel, terms
from penstock.database.notifications import notification
from penstock.database.operation import Operation
from penstock.database.parts import check_parts, parts
from penstock.database.pool_async import AsyncPool
from penstock.database.replica import read_point
from penstock.database.replica_pool_async import AsyncReplicaPool
from penstock.errors import (
    ReaderNotFound,
    ReplicaUnavailable,
    UnavailableError,
    ValidationError,
)
from penstock.log import boundary
from penstock.log.append import Appended
from penstock.log.context import LogContext, check_position
from penstock.log.decider import Command, Decider
from penstock.log.state_cache import StateCache
from penstock.loops.concurrency_async import run_in_thread
from penstock.loops.durations import Duration, seconds
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
            settings=settings,
            interceptors=tuple(interceptors),
            default_batch_size=settings.default_batch_size,
            sql_condition=settings.sql_condition,
            states=StateCache(settings.decider_cache_size),
        )
        connections = AsyncPool(settings, context.edition, context.interceptors)
        opened.callback(connections.close)
        replica = None
        if settings.replica is not None:
            context.require_penstock("a replica")
            replica = AsyncReplicaPool(connections)
            opened.callback(replica.close)
            await replica.check()
        return AsyncStore(connections, context, opened.pop_all().close, replica)


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

    def __init__(
        self,
        pool: AsyncPool,
        context: LogContext,
        on_close: Callable[[], None],
        replica: AsyncReplicaPool | None = None,
    ) -> None:
        self._pool = pool
        self.context = replace(context, wake_ups=pool.wake_ups)
        self._on_close = on_close
        self._replica = replica

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
        """Run an operation in a transaction of its own and return its result.

        A read that a standby can answer goes to the replica, if the store has one.
        """
        replica, read = self._replica, operation.replica
        if replica is not None and read is not None and replica.rest.is_over():
            point = await self._pool.run(read_point(read.resumes_at))
            try:
                return await replica.run_at(point, operation)
            except ReplicaUnavailable as error:
                replica.failed(error)
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
        meanwhile, reads what is new and decides again, up to `attempts` times in all. A transaction
        has one attempt: a conflict ends it.

        The store keeps the states of the boundaries that it decided on last, and reads only what
        came after them: see `Settings.decider_cache_size`.
        """
        guard = boundary.as_guard(conditions)
        return await retry(attempts=attempts)(self._decide)(decider, command, guard, keep=True)

    async def wait_until(
        self,
        consumer_id: str | None = None,
        position: int | None = None,
        *,
        category: str | None = None,
        queue: str | None = None,
        group: str | None = None,
        processor: tuple[str, str] | None = None,
        outbox: UUID | str | None = None,
        join: UUID | str | None = None,
        timeout: Duration = 30.0,
    ) -> str | None:
        """Wait until everything up to a global position is handled, or a task is finished.

        Name one: a consumer by its id (and its category, if the id has positions in several), a
        queue's consumer by `consumer_id` and `queue`, a partitioned `group`, a pipeline's
        `processor` as (pipeline, processor), a message of the `outbox`, or a `join`. The first four
        take the `position`, such as a write with `returning="global_position"` returns; the last
        two return the state in which it has ended.

        After `timeout` (seconds or a timedelta) it raises `WaitTimedOut`, which says how far it has
        come, or `ReaderNotFound` if nothing of this name has stored a position. If the database is
        away meanwhile, it waits for that, too.
        """
        self.context.require_penstock("wait_until")
        seconds("timeout", timeout)
        which = awaited.one_of(
            consumer_id=consumer_id, group=group, processor=processor, outbox=outbox, join=join
        )
        if which in ("outbox", "join"):
            task = (
                awaited.join(join or "")
                if which == "join"
                else awaited.outbox_message(outbox or "")
            )
            return await wait_for_task(self, task, timeout)
        if position is None:
            raise ValidationError("position", position, "a global position")
        check_position("position", position)
        if queue is not None:
            reader = awaited.session(queue, consumer_id or "")
        elif group is not None:
            reader = awaited.group(group)
        elif processor is not None:
            reader = awaited.processor(processor)
        else:
            category = category or await self._category_of(consumer_id or "")
            reader = awaited.consumer(category, consumer_id or "")
        await wait_for_reader(self, reader, position, timeout)
        return None

    async def _category_of(self, consumer_id: str) -> str:
        found = await self.run(awaited.categories_of(consumer_id))
        if not found:
            raise ReaderNotFound(f"consumer {consumer_id!r}")
        if len(found) > 1:
            raise ValidationError("category", None, f"one of {', '.join(found)}")
        return found[0]

    def transaction(
        self,
        isolation: IsolationLevel | str | None = None,
        *,
        read_only: bool = False,
        timeout: Duration | None = None,
    ) -> AsyncTransaction:
        """Return a transaction for an `async with` block: committed at its end, unless it raises.

        `timeout` limits the whole transaction. It defaults to the setting
        `transaction_timeout_ms`; unless `read_only`, it is at most `max_write_seconds`.

        Above READ COMMITTED, reads of many streams end at a watermark that is read before the
        transaction begins.
        """
        default_ms, most = self.settings.transaction_timeout_ms, self.settings.max_write_seconds
        return AsyncTransaction(
            self._pool, terms(isolation, read_only, timeout, default_ms, most), self.context
        )

    async def begin_transaction(
        self,
        isolation: IsolationLevel | str | None = None,
        *,
        read_only: bool = False,
        timeout: Duration | None = None,
    ) -> AsyncTransaction:
        """Begin a transaction that you end yourself, with `commit()` or `rollback()`."""
        return await self.transaction(isolation, read_only=read_only, timeout=timeout).begin()

    async def with_transaction(
        self,
        work: Callable[[AsyncTransaction], Awaitable[Result]],
        isolation: IsolationLevel | str | None = None,
        *,
        read_only: bool = False,
        timeout: Duration | None = None,
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
        wake_ups = self._pool.wake_ups
        if wake_ups is not None and not self.is_closed:
            unsent = await run_in_thread(wake_ups.close)
            if unsent:
                with suppress(UnavailableError):  # others find it at their next safety look
                    await self._pool.run(notification(unsent))
        self._pool.close()
        self._on_close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
