"""A primary and a streaming standby, made by pg_basebackup, for tests that read there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from penstock.database.embedded import EmbeddedServer, start
from tests.conftest import Server
from tests.log.test_watermark_faults import copy_data
from tests.racing import pause
from tests.servers import FAST, own_folder

# a conflict cancels the read at once, and does not wait half a minute for it to end
SETTINGS = {**FAST, "max_standby_streaming_delay": "0"}


class Standby:
    """A standby of a server, whose replay can be paused."""

    def __init__(self, primary: Server, embedded: EmbeddedServer) -> None:
        self._primary = primary
        self._embedded = embedded
        self._connection = psycopg.connect(embedded.url_for("postgres"), autocommit=True)

    def url(self, database: str) -> str:
        return self._embedded.url_for(database)

    def execute(self, statement: str, *arguments: object) -> list[Any]:
        return self._connection.execute(statement.encode(), arguments).fetchall()

    def catch_up(self) -> None:
        """Return once all that the primary has flushed is replayed."""
        with psycopg.connect(self._primary.url("postgres"), autocommit=True) as primary:
            row = primary.execute("select pg_current_wal_flush_lsn()").fetchone()
        assert row is not None
        while self.execute("select pg_last_wal_replay_lsn() >= %s::pg_lsn", *row) != [(True,)]:
            pause()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Replay nothing meanwhile."""
        self._pause()
        try:
            yield
        finally:
            self.resume()

    def _pause(self) -> None:
        self.execute("select pg_wal_replay_pause()")
        while self.execute("select pg_get_wal_replay_pause_state()") != [("paused",)]:
            pause()

    def resume(self) -> None:
        self.execute("select pg_wal_replay_resume()")

    @contextmanager
    def delayed_at_random(self, seed: int) -> Iterator[None]:
        """Pause and resume the replay meanwhile, for moments of any length."""
        random, ended = Random(seed), threading.Event()

        def delay() -> None:
            while not ended.wait(random.uniform(0, 0.02)):
                with self.paused():
                    ended.wait(random.choice([0, 0.005, 0.1]))

        thread = threading.Thread(target=delay)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def promote(self) -> None:
        self.execute("select pg_promote()")

    def disconnect(self, database: str) -> None:
        """End all sessions in a database."""
        self.execute(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = %s",
            database,
        )

    def close(self) -> None:
        self._connection.close()


class Pair:
    """A primary, and standbys of it."""

    def __init__(self, folder: Path, primary: Server, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self.primary = primary
        self.standby = self.new_standby("standby")

    def new_standby(self, name: str) -> Standby:
        with psycopg.connect(self.primary.url("postgres"), autocommit=True) as connection:
            data = self._folder / "primary" / "data"
            copy_data(connection, data, self._folder / name / "data")
        embedded = self._stack.enter_context(start(self._folder / name, settings=SETTINGS))
        standby = Standby(self.primary, embedded)
        self._stack.callback(standby.close)
        return standby

    def new_database(self) -> str:
        """Make a database with Penstock installed, and return its name once the standby has it."""
        name = self.primary.create_database(self.primary.template("penstock"))
        self.standby.catch_up()
        return name


@contextmanager
def primary_and_standby() -> Iterator[Pair]:
    """Run both, in a folder of their own."""
    with own_folder() as folder, ExitStack() as stack:
        primary = Server(stack.enter_context(start(folder / "primary", settings=SETTINGS)))
        primary.template("penstock")
        yield Pair(folder, primary, stack)


def unreachable(url: str) -> str:
    """Return the same address with a port at which nobody listens."""
    return make_conninfo(url, port=1)
