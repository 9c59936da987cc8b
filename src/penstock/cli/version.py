"""`penstock version`: of the package, of its SQL, and of what the server holds."""

from __future__ import annotations

import psycopg

import penstock
from penstock.cli.printing import console, facts, printable
from penstock.cli.target import Folder, Url, bare_connection, has_database, place, settings_for
from penstock.database import edition as editions
from penstock.database.edition import SCHEMA_VERSION
from penstock.database.execute import execute
from penstock.errors import PenstockError, first_line
from penstock.settings import Settings, redact


def version(url: Url = None, folder: Folder = None) -> None:
    """Show the versions of this package and of what the server holds."""
    settings = settings_for(url, folder)
    console().print(
        facts(
            {
                "penstock": penstock.__version__,
                "schema version": str(SCHEMA_VERSION),
                "server": printable(_server(settings)),
            }
        )
    )


def _server(settings: Settings) -> str:
    if not has_database(settings):
        return f"none: there is no database in {settings.folder}"
    try:
        return f"{_found(settings)}, at {place(settings)}"
    except (PenstockError, psycopg.Error) as error:
        return redact(first_line(error))


def _found(settings: Settings) -> str:
    with bare_connection(settings) as connection:
        server = f"PostgreSQL {connection.info.parameter_status('server_version')}"
        found = execute(connection, editions.find())
        if not found.has_message_store:
            return f"{server}, no message store"
        message_db = execute(connection, editions.message_store_version())
        last = execute(connection, editions.last_installation()) if found.has_penstock else None
        schema = f"Penstock's schema version {last.version}" if last else "no Penstock"
        return f"{server}, Message DB {message_db}, {schema}"
