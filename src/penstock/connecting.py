"""How a store comes to be: find the database, see what it holds, open the pool.

Without an address the embedded server is started, and its database is installed and upgraded by
itself. A server of yours is never changed by connecting: `penstock init` or `install()` does that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psycopg

from penstock.database import connection_setup, pool, pool_async
from penstock.database import edition as editions
from penstock.database.edition import SCHEMA_VERSION, Edition
from penstock.database.embedded import start
from penstock.database.execute import execute, execute_async
from penstock.database.install import Plan, check_parts, install_on
from penstock.database.interceptor import Interceptor
from penstock.database.operation import Operation
from penstock.database.parts import parts
from penstock.database.pool import Pool
from penstock.database.pool_async import AsyncPool
from penstock.errors import ValidationError
from penstock.log.context import LogContext
from penstock.message.serializer import JsonSerializer, Serializer
from penstock.settings import Settings, check_options
from penstock.store import Store
from penstock.store_async import AsyncStore


def connect(
    database_url: str | Settings | None = None,
    /,
    *,
    serializer: Serializer | None = None,
    interceptors: Sequence[Interceptor] = (),
    **options: Any,
) -> Store:
    """Return a store on the database at `database_url`.

    Without an address, `PENSTOCK_URL` is used; without that either, a real PostgreSQL is started in
    the folder `.penstock` and stops when its last user leaves. `options` are the fields of
    `Settings`.
    """
    settings = _settings(database_url, options)
    leave: Callable[[], None] = _nothing
    if settings.embedded:
        settings, leave = _start_embedded(settings)
    try:
        edition = _detect(settings)
    except BaseException:
        leave()
        raise
    pool = Pool(settings, edition)
    return Store(pool, _context(settings, edition, serializer, interceptors), leave)


async def connect_async(
    database_url: str | Settings | None = None,
    /,
    *,
    serializer: Serializer | None = None,
    interceptors: Sequence[Interceptor] = (),
    **options: Any,
) -> AsyncStore:
    """Return a store for async code, found as by `connect`."""
    settings = _settings(database_url, options)
    leave: Callable[[], None] = _nothing
    if settings.embedded:
        settings, leave = await _start_embedded_async(settings)
    try:
        edition = await _detect_async(settings)
    except BaseException:
        leave()
        raise
    pool = AsyncPool(settings, edition)
    return AsyncStore(pool, _context(settings, edition, serializer, interceptors), leave)


def install(
    database_url: str | Settings | None = None,
    /,
    *,
    take_over: bool = False,
    check: bool = False,
    progress: Callable[[str], None] = lambda what: None,
    **options: Any,
) -> Plan:
    """Install or upgrade Penstock in a database, and return what was done.

    Safe to repeat, and to run from many processes at once. On a genuine Message DB its functions
    stay as they are, unless `take_over` replaces them by ours. `check` only says what would be
    done. `progress` is called with each file that is run, and with who holds a lock that is needed.
    """
    settings = _settings(database_url, options)
    leave: Callable[[], None] = _nothing
    if settings.embedded:
        settings, leave = _join_embedded(settings)
    try:
        with pool.connect(settings) as connection:
            return install_on(
                connection, settings.where(), take_over=take_over, check=check, progress=progress
            )
    finally:
        leave()


def _settings(database_url: str | Settings | None, options: dict[str, Any]) -> Settings:
    if isinstance(database_url, Settings):
        check_options(options)
        return replace(database_url, **options)
    return Settings.load(database_url, **options)


def _start_embedded(settings: Settings) -> tuple[Settings, Callable[[], None]]:
    """Start the embedded server or join it, and install or upgrade what its database holds."""
    settings, leave = _join_embedded(settings)
    try:
        with pool.connect(settings) as connection:
            install_on(connection, settings.where(), replace=False)
    except BaseException:
        leave()
        raise
    return settings, leave


async def _start_embedded_async(settings: Settings) -> tuple[Settings, Callable[[], None]]:
    """Do the same in a thread; if the task is cancelled meanwhile, the server is left again."""
    starting = asyncio.ensure_future(asyncio.to_thread(_start_embedded, settings))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        starting.add_done_callback(_leave_at_once)
        raise


def _leave_at_once(started: asyncio.Future[tuple[Settings, Callable[[], None]]]) -> None:
    if not started.cancelled() and started.exception() is None:
        started.result()[1]()


def _join_embedded(settings: Settings) -> tuple[Settings, Callable[[], None]]:
    server = start(settings.folder)
    return replace(settings, database_url=server.url), server.leave


def _detect(settings: Settings) -> Edition:
    """Return what the database holds, or say why this client cannot work with it."""
    checks = _checks(settings.where())
    with pool.connect(settings) as connection:
        with _session_errors(settings):
            connection.execute(
                connection_setup.CONFIGURE, connection_setup.session_settings(settings)
            )
        try:
            operation = next(checks)
            while True:
                operation = checks.send(execute(connection, operation, where=settings.where()))
        except StopIteration as end:
            edition: Edition = end.value
            return edition


async def _detect_async(settings: Settings) -> Edition:
    """Return what the database holds, or say why this client cannot work with it."""
    checks = _checks(settings.where())
    async with await pool_async.connect(settings) as connection:
        with _session_errors(settings):
            await connection.execute(
                connection_setup.CONFIGURE, connection_setup.session_settings(settings)
            )
        try:
            operation = next(checks)
            while True:
                answer = await execute_async(connection, operation, where=settings.where())
                operation = checks.send(answer)
        except StopIteration as end:
            edition: Edition = end.value
            return edition


def _checks(where: str) -> Generator[Operation[Any], Any, Edition]:
    """What to ask the database: each operation is answered with its result."""
    found = yield editions.find()
    editions.check_found(found, where)
    editions.check_message_db((yield editions.message_store_version()), where)
    if found.has_penstock and (installation := (yield editions.last_installation())):
        editions.check_installation(installation, where)
        if installation.version == SCHEMA_VERSION:
            check_parts(installation, (yield parts()).of(found.edition), where)
    edition: Edition = found.edition
    return edition


@contextmanager
def _session_errors(settings: Settings) -> Iterator[None]:
    """Name the setting that the server refuses."""
    try:
        yield
    except psycopg.errors.InvalidParameterValue:
        zone, expected = settings.session_timezone, "a time zone that the server knows"
        raise ValidationError("session_timezone", zone, expected) from None


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


def _nothing() -> None:
    """Leave nothing: the server is not ours."""
