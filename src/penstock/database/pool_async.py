"""A pool of connections.

If a connection is broken, the operation is sent once more, on another one. That is safe, since
every operation can be repeated: a message gets its id before it is sent. A caller that finds no
idle connection opens one, or waits for one if the pool is full: see `base_pool.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, cast

import psycopg

from penstock.database import connection_setup
from penstock.database.base_pool import BasePool
from penstock.database.batch import Outcome, write_batch
from penstock.database.coalescer_async import UNBATCHED, AsyncCoalescer
from penstock.database.edition import Edition
from penstock.database.execute_async import execute
from penstock.database.interceptor import Interceptor, intercepted
from penstock.database.operation import Operation
from penstock.database.server_errors import typed_errors
from penstock.errors import (
    CommandTimeout,
    DatabaseUnreachable,
    TransactionConflict,
    UnavailableError,
)
from penstock.loops.concurrency_async import sleep, wait_for, waiting_scope
from penstock.settings import Settings

Result = TypeVar("Result")
Connection = psycopg.AsyncConnection[Any]


async def connect(settings: Settings, *, pooled: bool = False) -> Connection:
    """Return a new connection, or raise the typed error of the failed attempt."""
    kind = PooledConnection if pooled else psycopg.AsyncConnection
    # Without a threshold psycopg prepares nothing, even with `prepare=True`.
    threshold = 5 if settings.prepared_statements else None
    try:
        return await kind.connect(settings.conninfo(), autocommit=True, prepare_threshold=threshold)
    except psycopg.Error as error:
        raise connection_setup.connection_failed(error, settings.where()) from None


class PooledConnection(psycopg.AsyncConnection[Any]):
    """A connection of a pool. It may stay open until the program ends."""

    def __del__(self, *_: object) -> None:
        """Emit no ResourceWarning, unlike other psycopg connections."""


class AsyncPool(BasePool[Connection]):
    """A pool of connections, configured by the settings. `put` returns a connection to it."""

    def __init__(
        self, settings: Settings, edition: Edition, interceptors: Sequence[Interceptor] = ()
    ) -> None:
        super().__init__(settings, edition, interceptors)
        self._coalesces = settings.coalesce and edition is Edition.PENSTOCK
        self._coalescer = AsyncCoalescer(None, self.where, settings.max_queued_writes)

    async def run(self, operation: Operation[Result], *, is_batch: bool = False) -> Result:
        """Run one operation on a connection, and on another one if the first is broken.

        A write is sent in a batch if it meets others: see `coalescer_async.py`.
        """
        item = operation.item
        coalescer = None if item is None else self._coalescer_here()
        interceptors = () if is_batch else self.interceptors  # which see its calls
        with intercepted(interceptors, operation.name, operation.facts) as call:
            try:
                if item is not None and coalescer is not None and not coalescer.try_unbatched(item):
                    call.result = await coalescer.run(operation, self._send_batch)
                    if call.result is not UNBATCHED:
                        return cast(Result, call.result)
                for is_last in (False, True):
                    connection = await self.take()
                    try:
                        call.result = await execute(connection, operation, where=self.where)
                        break
                    except DatabaseUnreachable:
                        if is_last:
                            raise
                    finally:
                        self.put(connection)
                    self.drop_idle()
            except (CommandTimeout, TransactionConflict):
                if item is not None and coalescer is not None:
                    coalescer.release_waiting(item)
                raise
            finally:
                if item is not None and coalescer is not None:
                    coalescer.end_unbatched(item)
        self.notify(operation.notifies)
        return cast(Result, call.result)

    def _coalescer_here(self) -> AsyncCoalescer | None:
        """Return the coalescer of this event loop; a forked process has its own one, too."""
        if not self._coalesces:
            return None
        scope, coalescer = waiting_scope(), self._coalescer
        if scope != coalescer.scope:
            most_waiting = self.settings.max_queued_writes
            self._coalescer = coalescer = AsyncCoalescer(scope, self.where, most_waiting)
        return coalescer  # another loop may have replaced it

    async def _send_batch(self, calls: Sequence[Operation[Any]]) -> list[Outcome]:
        return await self.run(write_batch(calls), is_batch=True)

    async def take(self) -> Connection:
        """Take a connection out of the pool, or open one."""
        if (idle := self.take_idle()) is not None:
            return idle
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

    async def _wait_for_slot(self, attempts: connection_setup.Attempts) -> Connection | None:
        slot = self.reserve()
        try:
            return await wait_for(slot, attempts.left())
        except BaseException as error:  # a timeout, or the caller was interrupted
            self.stop_waiting(slot)
            if isinstance(error, TimeoutError):
                raise self.no_connection_error() from None
            raise

    async def _open(self) -> Connection:
        """Open a connection in an empty slot, and free the slot if that fails."""
        try:
            connection = await connect(self.settings, pooled=True)
            with typed_errors(self.where):
                await connection.execute(
                    *connection_setup.configuration(self.settings, self.edition)
                )
        except BaseException:
            self.put(None)
            raise
        self.opened(connection)
        return connection
