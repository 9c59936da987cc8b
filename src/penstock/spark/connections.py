"""Connections of Spark's processes: planners on the driver, tasks on executors.

These processes start and end with their tasks and share no pool. When the server has no free
connection, `connect` tries again for a while, because other tasks will end. The driver resolves
which database it is. For the embedded server its folder is sent along, so that tasks on the same
machine keep the server running.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict

from penstock.database import pool
from penstock.database.embedded import EmbeddedServer, start
from penstock.database.execute import execute
from penstock.database.operation import Operation
from penstock.database.server_errors import typed_errors
from penstock.errors import DatabaseUnreachable, NotInstalled
from penstock.settings import Settings

CONNECT_TIMEOUT = 60.0  # seconds to wait for a free connection
_joined: dict[Path, EmbeddedServer] = {}

Connection = psycopg.Connection[Any]
Result = TypeVar("Result")


@dataclass(frozen=True)
class DatabaseRef:
    """Which database to use, in a form that can be sent to executors."""

    settings: Settings
    #: the folder of the embedded server
    folder: Path | None = None

    @property
    def where(self) -> str:
        """Host, port and database, for an error message."""
        return self.settings.where()

    @property
    def conninfo(self) -> str:
        """The libpq connection string, for a driver other than psycopg."""
        return self.settings.conninfo()


def find_database(url: str | None) -> DatabaseRef:
    """Return the database at a URL, else the one of `PENSTOCK_URL`, else the embedded one."""
    settings = Settings.load(url)
    if not settings.embedded:
        return DatabaseRef(settings)
    folder = settings.folder.absolute()
    return DatabaseRef(replace(settings, database_url=_join(folder).url), folder)


def connect(
    database: DatabaseRef,
    *,
    timeout: float = CONNECT_TIMEOUT,
    open_connection: Callable[[Settings], Connection] = pool.connect,
) -> Connection:
    """Return a connection. While the server has none free, try again until the timeout."""
    if database.folder is not None and database.folder.exists():
        _join(database.folder)
    pause, deadline = 0.05, time.monotonic() + timeout
    while True:
        try:
            return _configured(_opened(database, open_connection), database.where)
        except DatabaseUnreachable as error:
            if not _is_full(error) or time.monotonic() > deadline:
                raise
        time.sleep(pause)
        pause = min(2 * pause, 2.0)


@contextmanager
def connected(database: DatabaseRef) -> Iterator[Connection]:
    """Open a connection for a `with` block, and raise typed errors in it."""
    with connect(database) as connection, typed_errors(database.where):
        yield connection


def run(connection: Connection, operation: Operation[Result]) -> Result:
    """Run an operation on a connection, without preparing it: most of these run once."""
    return execute(connection, operation, prepare=False)


def not_installed(where: str) -> NotInstalled:
    """Return the error for a database without the schema `penstock`."""
    return NotInstalled(f"{where} has no schema `penstock`, which Spark needs: run `penstock init`")


def _opened(database: DatabaseRef, open_connection: Callable[[Settings], Connection]) -> Connection:
    try:
        return open_connection(database.settings)
    except DatabaseUnreachable as error:
        if socket := _missing_socket(database.settings):
            reason = (
                f"the address names the Unix socket {socket}, which this machine does not have: "
                "executors elsewhere need a host and a port"
            )
            raise DatabaseUnreachable(database.where, reason) from None
        raise error from None


def _configured(connection: Connection, where: str) -> Connection:
    with typed_errors(where):  # the server may stop right after it accepted the connection
        connection.execute("set timezone = 'UTC'")
    return connection


def _is_full(error: DatabaseUnreachable) -> bool:
    return "too many clients" in error.reason or "connection slots" in error.reason


def _missing_socket(settings: Settings) -> str | None:
    parts = conninfo_to_dict(settings.conninfo())
    host, port = str(parts.get("host") or ""), parts.get("port") or 5432
    socket = Path(host) / f".s.PGSQL.{port}"
    return str(socket) if host.startswith("/") and not socket.exists() else None


def _join(folder: Path) -> EmbeddedServer:
    """Use the embedded server of a folder until this process ends."""
    if folder not in _joined:
        _joined[folder] = start(folder)
    return _joined[folder]
