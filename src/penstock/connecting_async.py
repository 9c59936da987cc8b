"""Connect a store: find the database, detect its edition, create the pool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.database import connection_setup, pool_async
from penstock.database.edition import Edition
from penstock.database.execute_async import execute
from penstock.database.interceptor import Interceptor
from penstock.database.locate import (
    checks,
    do_nothing,
    session_errors,
    settings_of,
    start_embedded,
)
from penstock.database.pool_async import AsyncPool
from penstock.log.context import LogContext
from penstock.loops.concurrency_async import run_in_thread
from penstock.message.serializer import JsonSerializer, Serializer
from penstock.settings import Settings
from penstock.store_async import AsyncStore


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
    settings, leave = settings_of(database_url, options), do_nothing
    if settings.embedded:
        settings, leave = await run_in_thread(
            lambda: start_embedded(settings), undo=lambda located: located[1]()
        )
    try:
        edition = await _detect(settings)
    except BaseException:
        leave()
        raise
    context = _context(settings, edition, serializer, interceptors)
    return AsyncStore(AsyncPool(settings, edition, context.interceptors), context, leave)


async def _detect(settings: Settings) -> Edition:
    """Return the edition of the database, or raise if this client cannot work with it."""
    operations = checks(settings.where())
    async with await pool_async.connect(settings) as connection:
        with session_errors(settings):
            await connection.execute(
                connection_setup.CONFIGURE, connection_setup.session_settings(settings)
            )
        try:
            operation = next(operations)
            while True:
                result = await execute(connection, operation, where=settings.where())
                operation = operations.send(result)
        except StopIteration as end:
            edition: Edition = end.value
            return edition


def _context(
    settings: Settings,
    edition: Edition,
    serializer: Serializer | None,
    interceptors: Sequence[Interceptor],
) -> LogContext:
    return LogContext(
        edition=edition,
        serializer=serializer or JsonSerializer(),
        interceptors=tuple(interceptors),
        default_batch_size=settings.default_batch_size,
        sql_condition=settings.sql_condition,
    )
