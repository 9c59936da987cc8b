"""Wake-ups that do not come: killed writers, lost connections, a stopped server, a pooler."""

from __future__ import annotations

import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

import penstock
from penstock.admin import checks
from penstock.database.wake_ups import Pace
from tests.log.waiting import (
    KINDS,
    NEVER,
    Kind,
    Sleeper,
    listener_pid,
    listening,
    running,
    store_with,
    wake_ups_of,
)
from tests.servers import own_server

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


def test_a_writer_that_is_killed_before_it_notifies_costs_a_delay_and_no_message(
    database_url: str,
) -> None:
    with (
        store_with(database_url, Pace()) as store,
        running(KINDS["consumer"], store) as waiter,
    ):
        listening(store)
        command = [sys.executable, "-m", "tests.log.dying_writer", database_url]
        died = subprocess.run(command, cwd=Path(__file__).parents[2], check=False)

        assert died.returncode == -signal.SIGKILL
        assert waiter.next() == 7


def test_waiters_look_when_the_lost_connection_listens_again(kind: Kind, database_url: str) -> None:
    with (
        penstock.connect(database_url, wake_up=False) as silent,
        store_with(database_url, NEVER) as store,
        running(kind, store) as waiter,
    ):
        listening(store)
        with psycopg.connect(database_url, autocommit=True) as other:
            other.execute("select pg_terminate_backend(%s)", (listener_pid(database_url),))

        kind.write(silent, 1)

        assert waiter.next() == 1


def test_waiters_go_on_after_the_server_was_restarted(kind: Kind) -> None:
    with (
        own_server() as server,
        store_with(server.url, NEVER) as store,
        running(kind, store) as waiter,
    ):
        kind.write(store, 0)
        assert waiter.next() == 0
        listening(store)

        server.restart()
        with penstock.connect(server.url) as writer:
            kind.write(writer, 1)

        while (got := waiter.next()) == 0:
            pass  # it is handled again: its acknowledgement was lost with the server
        assert got == 1
        kind.write(store, 2)
        assert waiter.next() == 2


def test_no_waiter_sleeps_past_its_safety_look_when_the_thread_is_stuck(
    kind: Kind, database_url: str
) -> None:
    pace = Pace(look=0.1, patience=0.3)
    with (
        penstock.connect(database_url, wake_up=False) as silent,
        store_with(database_url, pace) as store,
        running(kind, store, pause_ms=100) as waiter,
    ):
        listening(store)
        backend = psutil.Process(listener_pid(database_url))
        backend.suspend()
        try:
            kind.write(silent, 1)

            assert waiter.next() == 1
        finally:
            backend.resume()


def test_behind_a_transaction_pooler_waiters_poll_and_doctor_says_so(database_url: str) -> None:
    with without_notifications(database_url) as url:
        with store_with(url, Pace(probe=0.1)) as store:
            sleeper = Sleeper(store, "nothing")
            wake_ups_of(store).listen()
            store.write_message("order-1", "Placed", {"number": 1})
            first = next(store.follow_category("order", polling_interval_ms=1))

            assert first.data["number"] == 1
            assert not sleeper.one.is_woken
            assert not wake_ups_of(store).is_listening
        finding = _checked(url, timeout=0.1)
    direct = _checked(database_url)

    assert finding.level == "warning"
    assert "waiters poll" in finding.found
    assert direct.level == "OK"


def _checked(url: str, **options: float) -> checks.Finding:
    with (
        psycopg.connect(url, autocommit=True) as connection,
        psycopg.connect(url, autocommit=True) as other,
    ):
        return checks.wake_ups(connection, other, **options)


@contextmanager
def without_notifications(url: str) -> Iterator[str]:
    """Run a proxy that passes on everything but notifications, as a transaction pooler does."""
    parts = conninfo_to_dict(url)
    server = f"{parts['host']}/.s.PGSQL.{parts['port']}"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_accept, args=(listener, server), daemon=True)
        thread.start()
        port = listener.getsockname()[1]
        yield (
            f"postgresql://{parts['user']}@127.0.0.1:{port}/{parts['dbname']}"
            "?sslmode=disable&gssencmode=disable"
        )
        listener.shutdown(socket.SHUT_RDWR)


def _accept(listener: socket.socket, server: str) -> None:
    with suppress(OSError):
        while True:
            client, _ = listener.accept()
            backend = socket.socket(socket.AF_UNIX)
            backend.connect(server)
            for pump in (_pass_on, _pass_on_without_notifications):
                ends = (client, backend) if pump is _pass_on else (backend, client)
                threading.Thread(target=pump, args=ends, daemon=True).start()


def _pass_on(client: socket.socket, backend: socket.socket) -> None:
    with suppress(OSError):
        while data := client.recv(65536):
            backend.sendall(data)
    with suppress(OSError):
        backend.shutdown(socket.SHUT_RDWR)


def _pass_on_without_notifications(backend: socket.socket, client: socket.socket) -> None:
    with suppress(OSError), backend.makefile("rb") as answers:
        while header := answers.read(5):
            body = answers.read(struct.unpack("!xI", header)[0] - 4)
            if header[:1] != b"A":
                client.sendall(header + body)
    with suppress(OSError):
        client.shutdown(socket.SHUT_RDWR)
