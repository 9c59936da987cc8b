"""How a store comes to be: find the database, see what it holds, open the pool.

Without an address the embedded server is started, and its database is installed and upgraded by
itself. A server of yours is never changed by connecting: `penstock init` or `install()` does that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import psycopg

from penstock.async_store import AsyncStore
from penstock.database import blocking, session
from penstock.database import edition as editions
from penstock.database.awaiting import AsyncPool
from penstock.database.blocking import Pool
from penstock.database.edition import SCHEMA_VERSION, Edition
from penstock.database.embedded import start
from penstock.database.execute import execute
from penstock.database.install import Plan, check_parts, install_on
from penstock.database.parts import parts
from penstock.errors import ValidationError
from penstock.interceptor import Interceptor
from penstock.log.context import LogContext
from penstock.serializer import JsonSerializer, Serializer
from penstock.settings import Settings, check_options
from penstock.store import Store


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
    settings, edition, leave = _ready(_settings(database_url, options))
    pool = Pool(settings, edition)
    pool.open()
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
    settings, edition, leave = await asyncio.to_thread(_ready, _settings(database_url, options))
    pool = AsyncPool(settings, edition)
    await pool.open()
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
        settings, leave = _start_embedded(settings)
    try:
        with blocking.connect(settings) as connection:
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


def _ready(settings: Settings) -> tuple[Settings, Edition, Callable[[], None]]:
    """Return settings that name a server, what its database holds, and how to leave it."""
    if not settings.embedded:
        return settings, _detect(settings), _nothing
    settings, leave = _start_embedded(settings)
    try:
        with blocking.connect(settings) as connection:
            install_on(connection, settings.where(), replace=False)
        return settings, _detect(settings), leave
    except BaseException:
        leave()
        raise


def _start_embedded(settings: Settings) -> tuple[Settings, Callable[[], None]]:
    server = start(settings.folder)
    return replace(settings, database_url=server.url), server.leave


def _detect(settings: Settings) -> Edition:
    """Return what the database holds, or say why this client cannot work with it."""
    where = settings.where()
    with blocking.connect(settings) as connection:
        _try_session(connection, settings)
        ask = partial(execute, connection, where=where)
        found = ask(editions.find())
        editions.check_found(found, where)
        editions.check_message_db(ask(editions.message_store_version()), where)
        if found.has_penstock and (installation := ask(editions.last_installation())):
            editions.check_installation(installation, where)
            if installation.version == SCHEMA_VERSION:
                check_parts(installation, ask(parts()).of(found.edition), where)
        return found.edition


def _try_session(connection: psycopg.Connection[Any], settings: Settings) -> None:
    """Set up a session as the pool will: there it would be tried in vain, again and again."""
    try:
        connection.execute(session.CONFIGURE, session.session_settings(settings))
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
