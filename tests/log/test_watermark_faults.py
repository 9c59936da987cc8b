"""The watermark through prepared transactions, a crash of the server, and on a standby."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import psycopg
import pytest

from penstock.database.cluster import binaries
from penstock.database.embedded import start
from tests.conftest import Server
from tests.log.client import Client
from tests.servers import FAST

SETTINGS = {**FAST, "max_prepared_transactions": "10"}


@pytest.fixture(scope="module")
def folders() -> Iterator[Path]:
    """Where servers may be kept: not pytest's own folder, since a socket's path must be short."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def own_server(folders: Path) -> Iterator[Server]:
    """A server of these tests' own, which they may crash."""
    with start(folders / "primary", settings=SETTINGS) as primary:
        yield Server(primary)


@pytest.fixture
def connect(own_server: Server) -> Iterator[Callable[[], Client]]:
    """Open connections to a fresh database of that server."""
    url = own_server.url(own_server.create_database(own_server.template("penstock")))
    with ExitStack() as stack:

        def connect() -> Client:
            connection = psycopg.connect(url, autocommit=True)
            stack.callback(connection.close)
            return Client(connection)

        yield connect


@pytest.fixture
def crash(folders: Path) -> Iterator[Callable[[], None]]:
    """Kill the server outright, and start it again on what it left."""
    folder = folders / "primary"
    with ExitStack() as stack:

        def crash() -> None:
            pid = (folder / "data" / "postmaster.pid").read_text().split()[0]
            psutil.Process(int(pid)).kill()
            stack.enter_context(start(folder, settings=SETTINGS))

        yield crash


@pytest.fixture(scope="module")
def standby(folders: Path, own_server: Server) -> Iterator[Client]:
    """A standby of the server, in a database with one message."""
    database = own_server.create_database(own_server.template("penstock"))
    with psycopg.connect(own_server.url(database), autocommit=True) as connection:
        Client(connection).write()
        copy_data(connection, folders / "primary" / "data", folders / "standby" / "data")
    with (
        start(folders / "standby", settings=SETTINGS) as standby,
        psycopg.connect(standby.url_for(database), autocommit=True) as connection,
    ):
        yield Client(connection)


def copy_data(connection: psycopg.Connection, source: Path, target: Path) -> None:
    """Make a standby's data by PostgreSQL's own means, for the account that runs the server."""
    target.parent.mkdir()
    subprocess.run(
        [
            binaries(18) / "pg_basebackup",
            "--write-recovery-conf",
            "--checkpoint=fast",
            f"--pgdata={target}",
            f"--host={connection.info.host}",
            f"--port={connection.info.port}",
            "--username=postgres",
        ],
        check=True,
    )
    for path in [target, *target.rglob("*")]:
        os.chown(path, source.stat().st_uid, source.stat().st_gid)


class TestAPreparedTransaction:
    @pytest.mark.parametrize(("end", "then"), [("commit", [1, 2]), ("rollback", [2])])
    def test_holds_the_watermark_until_it_ends(
        self, writer: Client, other: Client, end: str, then: list[int]
    ) -> None:
        writer.write("account-1")
        writer.execute("prepare transaction 'payment'")
        other.write("account-2")
        meanwhile = (other.read(), writer.read())

        other.execute(f"{end} prepared 'payment'")

        assert (meanwhile, other.read()) == (([], []), then)

    def test_is_named_among_the_open_writers(self, writer: Client, other: Client) -> None:
        writer.write("account-1")
        writer.execute("prepare transaction 'payment'")

        found = other.execute(
            "select pid, role, application_name, state, age > interval '0', bound"
            " from penstock.open_writers()"
        ).fetchall()

        other.execute("rollback prepared 'payment'")
        assert found == [(None, "postgres", "payment", "prepared", True, 1)]

    def test_holds_the_watermark_through_a_crash(
        self, writer: Client, connect: Callable[[], Client], crash: Callable[[], None]
    ) -> None:
        writer.write("account-1")
        writer.execute("prepare transaction 'payment'")

        crash()

        other = connect()
        last = other.write("account-2")
        meanwhile = other.read()
        other.execute("commit prepared 'payment'")
        assert (meanwhile, other.read()) == ([], [1, last])


class TestACrash:
    def test_leaves_a_readers_cursor_right(
        self, other: Client, connect: Callable[[], Client], crash: Callable[[], None]
    ) -> None:
        seen = [other.write(f"account-{number}") for number in range(5)]
        for number in range(100):  # positions that come to nothing, and may be handed out again
            other.execute("begin")
            other.write(f"account-{number}")
            other.execute("rollback")
        cursor = other.read()[-1]

        crash()

        other = connect()
        written = [other.write(f"account-{number}") for number in range(50)]
        assert (cursor, other.read(position=cursor + 1)) == (seen[-1], written)

    def test_ends_its_open_writers(
        self, writer: Client, connect: Callable[[], Client], crash: Callable[[], None]
    ) -> None:
        writer.write("account-1")

        crash()

        other = connect()
        last = other.write("account-2")
        assert (other.watermark(), other.read()) == (last, [last])


class TestAStandby:
    @pytest.mark.parametrize(
        "query",
        [
            "select penstock.watermark()",
            "select penstock.category_head('account')",
            "select * from penstock.get_category_messages('$all')",
            "select * from penstock.get_category_messages('$all', watermark => 1)",
            "select * from message_store.get_category_messages('account')",
        ],
    )
    def test_refuses_to_read_many_streams(self, standby: Client, query: str) -> None:
        with pytest.raises(psycopg.Error) as caught:
            standby.execute(query)

        assert caught.value.sqlstate == "PS005"

    def test_reads_a_stream(self, standby: Client) -> None:
        messages = standby.execute("select * from message_store.get_stream_messages('account-1')")

        assert len(messages.fetchall()) == 1
