"""`penstock console`: what it serves, and when it refuses to."""

from __future__ import annotations

import re
import socket
import sys
import urllib.error
import urllib.request

import pytest

from tests.cli.conftest import Run, Start
from tests.forked_python import ForkedProcess


def _address(process: ForkedProcess) -> str:
    """Return where it listens, which it says on stderr."""
    assert process.stderr is not None
    while line := process.stderr.readline():
        text = line if isinstance(line, str) else line.decode()
        if found := re.search(r"http://\S+", text):
            return found[0]
    raise AssertionError("it has not said where it listens")


def test_it_serves_the_console_until_it_is_ended(start: Start, database_url: str) -> None:
    process = start("console", "--port", "0", url=database_url)
    address = _address(process)
    with urllib.request.urlopen(address) as answer:
        page = answer.read().decode()
    stream = urllib.request.urlopen(f"{address}live?page=/")
    stream.readline()

    process.terminate()
    process.wait(30)

    assert "<title>Overview" in page
    assert "read-only" in page


def test_it_prints_an_address_with_a_token_that_admits(start: Start, database_url: str) -> None:
    process = start("console", "--port", "0", "--token", "new", url=database_url)
    address = _address(process)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(address.partition("?")[0])
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())

    with opener.open(address) as answer:
        assert "token" not in answer.url
        assert "<title>Overview" in answer.read().decode()


def test_a_port_that_is_taken_is_named(penstock: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])

        result = penstock("console", "--port", port)

    assert result.exit_code == 1
    assert f"port {port} of 127.0.0.1 is taken" in result.stderr


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com"])
def test_others_can_reach_it_only_with_a_token(penstock: Run, host: str) -> None:
    result = penstock("console", "--host", host)

    assert result.exit_code == 1
    assert "give --token" in result.stderr


def test_a_short_token_is_refused(penstock: Run) -> None:
    result = penstock("console", "--port", "0", "--token", "short")

    assert result.exit_code == 2
    assert "token" in result.stderr
    assert "short" not in result.stderr


@pytest.mark.parametrize("host", ["192.0.2.1", "no host", "x" * 100, "a..b", "a\0b", "é" * 70])
def test_an_address_that_is_none_is_refused(penstock: Run, host: str) -> None:
    result = penstock("console", "--host", host, "--token", "x" * 16, "--port", "0")

    assert result.exit_code in (1, 2)
    assert "cannot listen on" in result.stderr or "host must be" in result.stderr


def test_without_the_extra_it_is_named(penstock: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)

    result = penstock("console")

    assert result.exit_code == 1
    assert "penstock-log[console]" in result.stderr
