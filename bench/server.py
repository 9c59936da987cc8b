"""The one server of a run, and the databases on it: ours, the genuine one, the bare table."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import psycopg
from psycopg import sql

import penstock
from penstock.database.embedded import EmbeddedServer, start
from tests import message_db

#: what differs from PostgreSQL's defaults; no checkpoint and no vacuum falls into a slice
SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "1GB",
    "max_wal_size": "16GB",
    "checkpoint_timeout": "1h",
    "autovacuum": "off",
    "jit": "off",
}

#: what every message carries
DATA = '{"amount": 50, "currency": "EUR", "account_id": "a1b2c3d4"}'
METADATA = '{"correlation_id": "0b8b6f1c"}'

_FILL = """
insert into {table} (id, stream_name, position, type, data, metadata)
select gen_random_uuid(), {category} || '-' || n / 10, n % 10, 'Deposited', {data}, {metadata}
from generate_series(0, {count} - 1) n
"""


class Server:
    """The server of this run."""

    def __init__(self, embedded: EmbeddedServer, folder: Path, port: int) -> None:
        self._embedded = embedded
        self._folder = folder
        self._port = port

    def url(self, database: str) -> str:
        """Return the URL of a database."""
        return self._embedded.url_for(database)

    def url_over_tcp(self, database: str) -> str:
        """Return the URL of a database for who cannot use its Unix socket, or should not."""
        return f"postgresql://postgres@127.0.0.1:{self._port}/{database}"

    def ours(self, database: str, messages: int = 10_000) -> str:
        """Make a database with Penstock, filled with messages, and return its URL."""
        url = self._create(database)
        penstock.install(url)
        fill(url, "message_store.messages", messages)
        return url

    def genuine(self, database: str, messages: int = 10_000) -> str:
        """Make a database with the genuine Message DB, filled with messages, and return its URL."""
        url = self._create(database)
        message_db.install(url)
        fill(url, "message_store.messages", messages)
        return url

    def bare(self, database: str, messages: int = 10_000) -> str:
        """Make a database with `bare`, our table without its triggers, and return its URL."""
        url = self._create(database)
        penstock.install(url)
        with psycopg.connect(url) as connection:
            connection.execute("create table bare (like message_store.messages including all)")
        fill(url, "bare", messages)
        return url

    def empty(self, database: str) -> str:
        """Make an empty database and return its URL."""
        return self._create(database)

    def drop(self, *databases: str) -> None:
        """Drop databases."""
        for database in databases:
            self._administer("drop database if exists {} with (force)", database)

    def machine(self) -> dict[str, str]:
        """Return what a reader has to know of the machine."""
        with psycopg.connect(self.url("postgres")) as connection:
            version = connection.info.parameter_status("server_version")
        return {
            "PostgreSQL": str(version),
            "Python": platform.python_version(),
            "system": f"{platform.system()} {platform.machine()}",
            "processors": str(os.cpu_count()),
            "load when it began": f"{os.getloadavg()[0]:.1f}",
            "one fdatasync": f"{_sync_seconds(self._folder) * 1000:.2f} ms",
        }

    def _create(self, database: str) -> str:
        self.drop(database)
        self._administer("create database {}", database)
        return self.url(database)

    def _administer(self, statement: str, name: str) -> None:
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(sql.Identifier(name)))


@contextmanager
def running() -> Iterator[Server]:
    """Start a PostgreSQL in a temporary folder, and remove it afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    port = _free_port()
    reached = {"listen_addresses": "127.0.0.1", "port": str(port)}
    try:
        with start(folder, settings={**SETTINGS, **reached}) as embedded:
            yield Server(embedded, folder, port)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def fill(url: str, table: str, messages: int, category: str = "account") -> None:
    """Write messages, ten to a stream, and let the server take notice of them."""
    with psycopg.connect(url, autocommit=True) as connection:
        statement = sql.SQL(_FILL).format(
            table=sql.Identifier(*table.split(".")),
            category=sql.Literal(category),
            data=sql.Literal(DATA),
            metadata=sql.Literal(METADATA),
            count=sql.Literal(messages),
        )
        connection.execute(statement)
        connection.execute("vacuum analyze")
        connection.execute("checkpoint")


def busy_seconds(connection: psycopg.Connection[Any]) -> float:
    """Return for how long the processor has been busy with this connection, on the server's side.

    Only Linux tells; elsewhere it is the time of the clock, and what else runs disturbs it more.
    """
    clock = Path(f"/proc/{connection.info.backend_pid}/schedstat")
    if not clock.exists():
        return time.perf_counter()
    return int(clock.read_text().split()[0]) / 1_000_000_000


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _sync_seconds(folder: Path) -> float:
    """Return how long the disk takes to keep 8 kB, which every single commit waits for."""
    path = folder / "sync"
    seconds: list[float] = []
    with path.open("wb", buffering=0) as file:
        for _ in range(21):
            file.seek(0)
            file.write(bytes(8192))
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            seconds.append(time.perf_counter() - began)
    path.unlink()
    return median(seconds)
