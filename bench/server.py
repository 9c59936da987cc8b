"""The one server of a run, and the databases on it: ours, the genuine one, the bare table."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import psycopg
from psycopg import sql

import penstock
from bench import peers
from bench.results import Setting
from penstock.database.embedded import EmbeddedServer, start
from tests import message_db

#: what differs from PostgreSQL's defaults
SETTINGS = {"max_wal_size": "16GB", "checkpoint_timeout": "1h"}
_NO_CHECKPOINT = (
    "A checkpoint makes the next write to every page dearer. It would fall into the slice of one "
    "contender and not of its neighbour, so checkpoints are made between the measurements."
)
_EMBEDDED = "The embedded server's own setting, as its users have it."
#: why a setting differs
REASONS = {
    "max_wal_size": _NO_CHECKPOINT,
    "checkpoint_timeout": _NO_CHECKPOINT,
    "max_connections": _EMBEDDED,
}
#: what a reader asks about first, as it is by default
SHOWN = (
    "autovacuum",
    "autovacuum_naptime",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "shared_buffers",
    "jit",
)
_SETTINGS = """
select name, current_setting(name), case
    when setting = boot_val then current_setting(name)
    when unit = 'MB' then pg_size_pretty(boot_val::bigint * 1024 * 1024)
    when unit = '8kB' then pg_size_pretty(boot_val::bigint * 8192)
    else boot_val || coalesce(unit, '')
  end
from pg_settings
where name = any (%s)
  or source = 'configuration file' and setting is distinct from boot_val
    and name not in ('listen_addresses', 'port', 'unix_socket_directories')
    and category !~ 'Locale and Formatting|Logging'
order by setting is not distinct from boot_val, name
"""

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
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3
        return {
            "system": f"{platform.system()} {platform.machine()}",
            "processors": str(os.cpu_count()),
            "memory": f"{memory:.0f} GB",
            "load when it began": f"{os.getloadavg()[0]:.1f}",
        }

    def versions(self) -> dict[str, str]:
        """Return the versions of all that is measured."""
        with psycopg.connect(self.url("postgres")) as connection:
            postgres = connection.info.parameter_status("server_version")
        installed = {name: version(name) for name in ("pyspark", "psycopg", "message-db-py")}
        return {
            "Penstock": f"{penstock.__version__}{_commit()}",
            "PostgreSQL": str(postgres),
            "Python": platform.python_version(),
            "Message DB": message_db.VERSION,
            **installed,
            **peers.versions(),
        }

    def settings(self) -> list[Setting]:
        """Return the settings that differ from PostgreSQL's defaults, and some that do not."""
        with psycopg.connect(self.url("postgres")) as connection:
            rows = connection.execute(_SETTINGS, (list(SHOWN),)).fetchall()
        return [
            Setting(name, value, default, REASONS.get(name, "")) for name, value, default in rows
        ]

    def sync_ms(self) -> float:
        """Return how long the disk takes to keep 8 kB, which every single commit waits for."""
        return _sync_seconds(self._folder) * 1000

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
    settle(url)


def settle(url: str) -> None:
    """Do at once what autovacuum and the checkpointer would do sooner or later."""
    with psycopg.connect(url, autocommit=True) as connection:
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


def _commit() -> str:
    """Return the commit that is measured, if git can tell."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    done = subprocess.run(
        command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return f", commit {done.stdout.strip()}" if done.returncode == 0 else ""


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _sync_seconds(folder: Path) -> float:
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
