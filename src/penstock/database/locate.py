"""Find the database that the settings name, and check that this client can work with it.

Without an address, the embedded server is started, and its database is installed or upgraded.
Connecting never changes any other server: `penstock init` or `install()` does that.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psycopg

from penstock.database import edition as editions
from penstock.database import pool
from penstock.database.edition import SCHEMA_VERSION, Edition
from penstock.database.embedded import start
from penstock.database.install import Plan, check_parts, install_on
from penstock.database.operation import Operation
from penstock.database.parts import parts
from penstock.errors import ValidationError
from penstock.settings import Settings, check_options

#: settings with the address of the database, and a function to call when it is not used any more
Located = tuple[Settings, Callable[[], None]]


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

    Safe to repeat, and to run from many processes at once. On a genuine Message DB, its functions
    stay as they are unless `take_over` replaces them with Penstock's. `check` returns what would be
    done, and changes nothing. `progress` is called with each file that is run, and with the session
    that holds a required lock.
    """
    settings, leave = settings_of(database_url, options), do_nothing
    if settings.embedded:
        settings, leave = _join_embedded(settings)
    try:
        with pool.connect(settings) as connection:
            return install_on(
                connection, settings.where(), take_over=take_over, check=check, progress=progress
            )
    finally:
        leave()


def settings_of(database_url: str | Settings | None, options: dict[str, Any]) -> Settings:
    """Return the settings from the arguments and the environment."""
    if isinstance(database_url, Settings):
        check_options(options)
        return replace(database_url, **options)
    return Settings.load(database_url, **options)


def start_embedded(settings: Settings) -> Located:
    """Start or join the embedded server, and install or upgrade its database."""
    settings, leave = _join_embedded(settings)
    try:
        with pool.connect(settings) as connection:
            install_on(connection, settings.where(), replace=False)
    except BaseException:
        leave()
        raise
    return settings, leave


def do_nothing() -> None:
    """Do nothing, in place of leaving an embedded server."""


def _join_embedded(settings: Settings) -> Located:
    server = start(settings.folder)
    return replace(settings, database_url=server.url), server.leave


def checks(where: str) -> Generator[Operation[Any], Any, Edition]:
    """Yield operations that check a database, take their results, and return its edition."""
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
def session_errors(settings: Settings) -> Iterator[None]:
    """Raise a `ValidationError` for a setting that the server rejects."""
    try:
        yield
    except psycopg.errors.InvalidParameterValue:
        zone, expected = settings.session_timezone, "a time zone name that the server accepts"
        raise ValidationError("session_timezone", zone, expected) from None
