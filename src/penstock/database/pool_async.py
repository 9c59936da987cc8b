"""A pool of connections.

If a connection is broken, the operation is sent once more, on another one. That is safe, since
every operation can be repeated: a message gets its id before it is sent. A caller that finds no
idle connection opens one, or waits for one if the pool is full: see `slots.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, cast

import psycopg

from penstock.database import connection_setup
from penstock.database.edition import Edition
from penstock.database.execute_async import execute
from penstock.database.interceptor import Interceptor, intercepted
from penstock.database.operation import Operation
from penstock.database.server_errors import typed_errors
from penstock.database.slots import Slots
from penstock.errors import DatabaseUnreachable, UnavailableError
from penstock.loops.concurrency_async import sleep, wait_for
from penstock.settings import Settings

Result = TypeVar("Result")
Connection = psycopg.AsyncConnection[Any]


async def connect(settings: Settings, *, pooled: bool = False) -> Connection:
    """Return a new connection, or raise the typed error of the failed attempt."""
    kind = PooledConnection if pooled else psycopg.AsyncConnection
    try:
        return await kind.connect(
            settings.conninfo(), **connection_setup.connection_options(settings)
        )
    except psycopg.Error as error:
        raise connection_setup.connection_failed(error, settings.where()) from None


class PooledConnection(psycopg.AsyncConnection[Any]):
    """A connection of a pool. It may stay open until the program ends."""

    def __del__(self, *_: object) -> None:
        """Emit no ResourceWarning, unlike other psycopg connections."""


class AsyncPool:
    """A pool of connections, configured by the settings."""

    def __init__(
        self, settings: Settings, edition: Edition, interceptors: Sequence[Interceptor] = ()
    ) -> None:
        self.settings = settings
        self.interceptors = interceptors
        self.edition = edition
        self.where = settings.where()
        self._slots: Slots[Connection] = Slots(
            settings.pool_min_size, settings.pool_max_size, self.where
        )

    @property
    def is_closed(self) -> bool:
        """Whether the pool is closed."""
        return self._slots.is_closed

    async def close(self) -> None:
        """Close all connections. In a forked child, close none: they belong to the parent."""
        self._slots.close()

    async def run(self, operation: Operation[Result]) -> Result:
        """Run one operation on a connection, and on another one if the first is broken."""
        with intercepted(self.interceptors, operation.name, operation.facts) as call:
            for is_last in (False, True):
                connection = await self.take()
                try:
                    call.result = await execute(connection, operation, where=self.where)
                    break
                except DatabaseUnreachable:
                    if is_last:
                        raise
                finally:
                    self.give_back(connection)
                self.drop_idle()
        return cast(Result, call.result)

    async def take(self) -> Connection:
        """Take a connection out of the pool. Give it back with `give_back`."""
        attempts = connection_setup.Attempts(self.settings)
        while True:
            connection = await self._wait_for_slot(attempts)
            if connection is not None:
                return connection
            try:
                return await self._open()
            except UnavailableError as error:
                pause = attempts.pause_after(error)
            await sleep(pause)

    def give_back(self, connection: Connection) -> None:
        """Return a connection to the pool, which closes it if it cannot be used again."""
        self._slots.put(connection)

    def drop_idle(self) -> None:
        """Close the idle connections, after another one was found broken."""
        self._slots.drop_idle()

    async def _wait_for_slot(self, attempts: connection_setup.Attempts) -> Connection | None:
        slot = self._slots.take()
        try:
            return await wait_for(slot, attempts.left())
        except TimeoutError:
            self._slots.stop_waiting(slot)
            raise connection_setup.no_connection_error(self.settings, self._slots.lent) from None
        except BaseException:  # the caller was interrupted
            self._slots.stop_waiting(slot)
            raise

    async def _open(self) -> Connection:
        """Open a connection in an empty slot, and free the slot if that fails."""
        try:
            connection = await connect(self.settings, pooled=True)
            await self._configure(connection)
        except BaseException:
            self._slots.put(None)
            raise
        self._slots.opened(connection)
        return connection

    async def _configure(self, connection: Connection) -> None:
        with typed_errors(self.where):
            await connection.execute(
                connection_setup.CONFIGURE, connection_setup.session_settings(self.settings)
            )
            if connection_setup.needs_search_path(self.edition):
                await connection.execute(connection_setup.PREPEND_SEARCH_PATH)
