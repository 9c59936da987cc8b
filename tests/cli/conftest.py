"""Run the real command: in this process where that is enough, as a process where it is not."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest
import typer.testing
from typer.testing import CliRunner, Result

from penstock.cli.app import app
from tests.forked_python import ForkedProcess, penstock_server, spark_server

# To build all commands from their functions takes longer than to run one.
typer.testing._get_command = cache(typer.testing._get_command)  # type: ignore[attr-defined]

Run = Callable[..., Result]
Start = Callable[..., ForkedProcess]


def run(
    *arguments: str,
    url: str | None = None,
    stdin: str | bytes | None = None,
    columns: int | None = None,
    env: Mapping[str, str] = {},
) -> Result:
    """Run the command in this process, on the database at `url`."""
    width = None if columns is None else str(columns)
    environment: dict[str, str | None] = {"PENSTOCK_URL": url, "COLUMNS": width, **env}
    return CliRunner().invoke(app, arguments, input=stdin, env=environment, catch_exceptions=False)


@pytest.fixture
def penstock(database_url: str) -> Run:
    """The command, on a fresh database with Penstock installed."""
    return lambda *arguments, **options: run(*arguments, **{"url": database_url, **options})


@pytest.fixture
def start(request: pytest.FixtureRequest) -> Iterator[Start]:
    """Start the command as a process, which must not outlive the test."""
    server = spark_server() if request.node.get_closest_marker("spark") else penstock_server()
    started: list[ForkedProcess] = []
    inherited = {key: value for key, value in os.environ.items() if key != "COLUMNS"}  # of xdist

    def start(
        *arguments: str,
        url: str | None = None,
        cwd: Path | None = None,
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.PIPE,
        env: Mapping[str, str] = {},
    ) -> ForkedProcess:
        started.append(
            server.start(
                *("-m", "penstock", *arguments),
                env={**inherited, **({"PENSTOCK_URL": url} if url else {}), **env},
                cwd=cwd,
                stdin=stdin,
                stdout=stdout,
                stderr=subprocess.PIPE,
            )
        )
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def on_terminal(url: str, *arguments: str, columns: int = 80) -> str:
    """Return what people see of the command, on a terminal so many columns wide."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {**os.environ, "PENSTOCK_URL": url, "TERM": "xterm-256color"}
    environment.pop("COLUMNS", None)
    with penstock_server().start(
        *("-m", "penstock", *arguments),
        env=environment,
        stdin=slave,
        stdout=slave,
        stderr=slave,
    ) as process:
        os.close(slave)
        seen = b"".join(iter(lambda: _read(master), b""))
        process.wait(timeout=60)
    os.close(master)
    return seen.decode().replace("\r\n", "\n")


def _read(master: int) -> bytes:
    try:
        return os.read(master, 65536)
    except OSError:  # Linux says so when the last writer has gone
        return b""
