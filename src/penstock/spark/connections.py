"""Connections of Spark's processes: planners on the driver, tasks on executors.

These processes start and end with their tasks and share no pool. When the server has no free
connection, `connect` tries again for a while, because other tasks will end. The driver resolves
which database it is. For the embedded server its folder is sent along, so that tasks on the same
machine keep the server running.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict

from penstock.database import pool
from penstock.database.embedded import EmbeddedServer, start
from penstock.database.execute import execute
from penstock.database.notifications import notification
from penstock.database.operation import Operation
from penstock.database.replica import (
    ReadPoint,
    Wait,
    allow,
    check_cluster,
    cluster,
    flush_to,
    read_point,
    replica_errors,
)
from penstock.database.server_errors import typed_errors
from penstock.database.waiters import EVERYTHING
from penstock.errors import DatabaseUnreachable, NotInstalled, PenstockError, ReplicaUnavailable
from penstock.settings import Settings

CONNECT_TIMEOUT = 60.0  # seconds to wait for a free connection

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

    @cached_property
    def replica(self) -> DatabaseRef | None:
        """The standby to read, if there is one."""
        return DatabaseRef(self.settings.of_replica()) if self.settings.replica else None


def find_database(url: str | None, **options: Any) -> DatabaseRef:
    """Return the database at a URL, else the one of `PENSTOCK_URL`, else the embedded one."""
    settings = Settings.load(url, **options)
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
            connection = open_connection(database.settings)
        except DatabaseUnreachable as error:
            _refuse_missing_socket(database)
            is_full = "too many clients" in error.reason or "connection slots" in error.reason
            if not is_full or time.monotonic() > deadline:
                raise error from None
            time.sleep(pause)
            pause = min(2 * pause, 2.0)
        else:
            with typed_errors(database.where):  # the server may stop right after it accepted
                connection.execute("set timezone = 'UTC'")
            return connection


@contextmanager
def connected(database: DatabaseRef) -> Iterator[Connection]:
    """Open a connection for a `with` block, and raise typed errors in it."""
    with connect(database) as connection, typed_errors(database.where):
        yield connection


@contextmanager
def connected_at(replica: DatabaseRef, point: ReadPoint) -> Iterator[Connection]:
    """Open a connection to a standby for a `with` block, in a transaction that reads at a point."""
    with replica_errors(replica.where), connected(replica) as connection:
        wait = Wait(replica.settings.max_replica_lag)
        while True:
            connection.execute("begin isolation level read committed")
            try:
                run(connection, allow(point))
                break
            except ReplicaUnavailable as error:
                connection.execute("rollback")
                pause = wait.pause_after(error)
            time.sleep(pause)
        yield connection


def check_replica(connection: Connection, database: DatabaseRef) -> None:
    """Raise if the replica is reachable and no standby of this primary."""
    if (replica := database.replica) is None:
        return
    try:
        with replica_errors(replica.where), connected(replica) as standby:
            check_cluster(run(connection, cluster()), run(standby, cluster()), replica.where)
    except ReplicaUnavailable:
        if not database.settings.replica_fallback:
            raise


def take_point(connection: Connection, database: DatabaseRef) -> ReadPoint | None:
    """Ask the primary for the point at which tasks read the replica; None without one."""
    if database.replica is None:
        return None
    point = run(connection, read_point())
    run(connection, flush_to(point))  # tasks have no connection to the primary to ask later
    return point


def run(connection: Connection, operation: Operation[Result]) -> Result:
    """Run an operation on a connection, without preparing it: most of these run once."""
    return execute(connection, operation, prepare=False)


def notify_all(connection: Connection, database: DatabaseRef) -> None:
    """Wake all waiters, after the commit of what was written. If that fails, they look later."""
    if database.settings.wake_up:
        with suppress(PenstockError, psycopg.Error):
            run(connection, notification([EVERYTHING]))


def not_installed(where: str) -> NotInstalled:
    """Return the error for a database without the schema `penstock`."""
    return NotInstalled(f"{where} has no schema `penstock`, which Spark needs: run `penstock init`")


def _refuse_missing_socket(database: DatabaseRef) -> None:
    parts = conninfo_to_dict(database.settings.conninfo())
    host, port = str(parts.get("host") or ""), parts.get("port") or 5432
    socket = Path(host) / f".s.PGSQL.{port}"
    if host.startswith("/") and not socket.exists():
        reason = (
            f"the address names the Unix socket {socket}, which this machine does not have: "
            "executors elsewhere need a host and a port"
        )
        raise DatabaseUnreachable(database.where, reason) from None


@cache
def _join(folder: Path) -> EmbeddedServer:
    """Use the embedded server of a folder until this process ends."""
    return start(folder)
