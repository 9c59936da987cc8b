"""Who may connect: passwords, and TLS. What each role may do is in tests/database/test_roles.py."""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import penstock
from penstock.database.embedded import start
from penstock.errors import AuthenticationFailed, DatabaseUnreachable

RULES = """
local all postgres trust
host  all all      127.0.0.1/32 scram-sha-256
"""


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    """A server that asks for passwords over TCP: the URL of its owner, who needs none."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-"))
    folder.chmod(0o755)
    rules = folder / "rules.conf"
    rules.write_text(RULES)
    rules.chmod(0o644)
    settings = {
        "fsync": "off",
        "hba_file": str(rules),
        "listen_addresses": "127.0.0.1",
        "port": str(free_port()),
    }
    with start(folder, settings=settings) as server:
        penstock.install(server.url)
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("create role ada login password 'hunter2' in role message_store")
        yield server.url
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def address(guarded: str) -> dict[str, Any]:
    """Where to find the guarded server over TCP."""
    with psycopg.connect(guarded) as connection:
        port = connection.info.port
    return {"host": "127.0.0.1", "port": port, "dbname": "penstock"}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class TestAPassword:
    def test_that_is_right_lets_in(self, address: dict[str, Any]) -> None:
        with penstock.connect(**address, user="ada", password="hunter2") as store:
            assert store.message_store_version() == "1.3.0"

    @pytest.mark.parametrize(
        ("user", "password"), [("ada", "hunter3"), ("nobody", "hunter3"), ("ada", None)]
    )
    async def test_that_is_wrong_is_reported_and_not_shown(
        self, address: dict[str, Any], user: str, password: str | None
    ) -> None:
        errors = []
        with pytest.raises(AuthenticationFailed, match="refused the login") as caught:
            penstock.connect(**address, user=user, password=password)
        errors.append(caught.value)
        with pytest.raises(AuthenticationFailed) as caught:
            await penstock.connect_async(**address, user=user, password=password)
        errors.append(caught.value)

        for error in errors:
            assert not error.retryable
            assert "hunter3" not in f"{error} {error!r} {error.__cause__!r}"

    def test_is_not_all_that_may_keep_out(self, guarded: str) -> None:
        with pytest.raises(AuthenticationFailed, match="nobody"):
            penstock.connect(guarded, user="nobody")

    def test_in_a_url_is_not_shown(self, address: dict[str, Any]) -> None:
        url = f"postgresql://ada:hunter3@127.0.0.1:{address['port']}/penstock"

        with pytest.raises(AuthenticationFailed) as caught:
            penstock.connect(url)

        assert "hunter3" not in str(caught.value)
        assert caught.value.where == f"127.0.0.1:{address['port']}/penstock"

    def test_that_was_changed_meanwhile_is_reported(
        self, address: dict[str, Any], guarded: str
    ) -> None:
        with psycopg.connect(guarded, autocommit=True) as connection:
            connection.execute("create role bob login password 'old' in role message_store")
            # one connection: no other can be in the making while the password is changed
            with penstock.connect(**address, user="bob", password="old", pool_max_size=1) as store:
                store.write_message("account-1", "Opened")
                connection.execute("alter role bob password 'new'")
                connection.execute(
                    "select pg_terminate_backend(pid, 10000) from pg_stat_activity"
                    " where usename = 'bob'"
                )

                with pytest.raises(AuthenticationFailed):
                    store.stream_version("account-1")


class TestTls:
    @pytest.mark.parametrize("mode", ["require", "verify-ca", "verify-full"])
    def test_that_the_server_cannot_speak_is_not_gone_without(
        self, address: dict[str, Any], mode: str
    ) -> None:
        options: dict[str, Any] = {"user": "ada", "password": "hunter2", "sslmode": mode}

        with pytest.raises(DatabaseUnreachable, match=r"SSL|root certificate"):
            penstock.connect(**address, **options)

    def test_may_be_asked_for_in_the_url(self, address: dict[str, Any]) -> None:
        port = address["port"]

        with pytest.raises(DatabaseUnreachable, match="SSL"):
            penstock.connect(f"postgresql://ada:hunter2@127.0.0.1:{port}/penstock?sslmode=require")
