"""Connections of Spark's own processes: planners on the driver, tasks on executors.

They come and go with tasks and share no pool. A server that has no connection to spare is asked
again for a while, since other tasks will end. The driver decides which database it is; where that
is the embedded one, its folder goes along, so that tasks on this machine keep it running.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from penstock.database import pool
from penstock.database.embedded import EmbeddedServer, start
from penstock.database.server_errors import typed_errors
from penstock.errors import DatabaseUnreachable, NotInstalled
from penstock.settings import Settings

PATIENCE = 60.0  # seconds to wait for a free connection
_joined: dict[Path, EmbeddedServer] = {}


@dataclass(frozen=True)
class Place:
    """A database, as the driver found it."""

    settings: Settings
    folder: Path | None = None

    @property
    def where(self) -> str:
        """Host, port and database, for an error message."""
        return self.settings.where()


def find_place(url: str | None) -> Place:
    """Return the database of an address, of the environment, or the embedded one."""
    settings = Settings.load(url)
    if not settings.embedded:
        return Place(settings)
    folder = settings.folder.absolute()
    return Place(replace(settings, database_url=_join(folder).url), folder)


def connect(place: Place) -> psycopg.Connection[Any]:
    """Return a connection, or say shortly why there is none."""
    if place.folder is not None and place.folder.exists():
        _join(place.folder)
    pause, deadline = 0.05, time.monotonic() + PATIENCE
    while True:
        try:
            return _connect(place)
        except DatabaseUnreachable as error:
            if not _is_full(error) or time.monotonic() > deadline:
                raise
        time.sleep(pause)
        pause = min(2 * pause, 2.0)


@contextmanager
def connected(place: Place) -> Iterator[psycopg.Connection[Any]]:
    """Lend a connection of its own, with typed errors."""
    with connect(place) as connection, typed_errors(place.where):
        yield connection


def not_installed(where: str) -> NotInstalled:
    """Return the error for a database that Penstock has not set up, if Message DB did or nobody."""
    return NotInstalled(f"{where} has no schema of Penstock's, which Spark needs: `penstock init`")


def conninfo(place: Place) -> str:
    """Return libpq's address of the database, for a driver other than psycopg."""
    return place.settings.conninfo()


def _connect(place: Place) -> psycopg.Connection[Any]:
    try:
        connection = pool.connect(place.settings)
    except DatabaseUnreachable as error:
        if hidden := _hidden_socket(place.settings):
            reason = (
                f"the address names the Unix socket {hidden}, which this machine does not have: "
                "executors elsewhere need a host and a port"
            )
            raise DatabaseUnreachable(place.where, reason) from None
        raise error from None
    with typed_errors(place.where):  # a server may stop at any moment, also at this one
        connection.execute("set timezone = 'UTC'")
    return connection


def _is_full(error: DatabaseUnreachable) -> bool:
    return "too many clients" in error.reason or "connection slots" in error.reason


def _hidden_socket(settings: Settings) -> str | None:
    parts = conninfo_to_dict(settings.conninfo())
    host, port = str(parts.get("host") or ""), parts.get("port") or 5432
    socket = Path(host) / f".s.PGSQL.{port}"
    return str(socket) if host.startswith("/") and not socket.exists() else None


def _join(folder: Path) -> EmbeddedServer:
    """Use the embedded server of a folder until this process ends."""
    if folder not in _joined:
        _joined[folder] = start(folder)
    return _joined[folder]
