"""`penstock version` always answers, whatever the server does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import penstock
from tests.cli.conftest import run


@pytest.mark.parametrize(
    ("edition", "found"),
    [
        ("penstock", "Message DB 1.3.0, Penstock's schema version 3"),
        ("genuine", "Message DB 1.3.0, no Penstock"),
        ("empty", "no message store"),
    ],
)
def test_version_tells_what_the_server_holds(
    new_database: Callable[[str], str], edition: str, found: str
) -> None:
    result = run("version", url=new_database(edition))

    assert result.exit_code == 0
    assert f"penstock        {penstock.__version__}" in result.stdout
    assert "schema version  3" in result.stdout
    assert found in result.stdout


def test_version_of_a_server_that_is_away_is_no_error() -> None:
    result = run("version", "--url", "postgresql://ada:secret@127.0.0.1:1/shop")

    assert result.exit_code == 0
    assert "PostgreSQL at 127.0.0.1:1/shop cannot be reached" in result.stdout
    assert "secret" not in result.output


def test_version_makes_no_database(tmp_path: Path) -> None:
    result = run("version", "--folder", str(tmp_path / "new"))

    assert result.exit_code == 0
    assert "no database in" in result.stdout
    assert not (tmp_path / "new").exists()
