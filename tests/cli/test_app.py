"""What all commands have in common: the help, the version, the database, completion, privileges."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

import penstock
from tests.cli.conftest import run


def test_it_says_its_version() -> None:
    result = run("--version")

    assert (result.exit_code, result.stdout) == (0, f"penstock {penstock.__version__}\n")


def test_the_help_groups_the_commands() -> None:
    shown = run("--help", columns=100).stdout

    for panel in ("Set up", "Messages", "Consumers", "Outbox", "Pipelines"):
        assert f"─ {panel} ─" in shown


class TestTheDatabase:
    def test_may_be_named_before_the_command(self, database_url: str) -> None:
        written = run("--url", database_url, "write", "account-1", "Opened")

        assert written.exit_code == 0, written.stderr
        assert "account-1" in run("--url", database_url, "streams").stdout

    def test_may_be_named_before_a_command_of_a_group(self, database_url: str) -> None:
        assert run("--url", database_url, "outbox").exit_code == 0

    def test_that_the_command_names_wins(self, database_url: str) -> None:
        result = run("--url", "postgresql://nowhere.invalid/x", "streams", "--url", database_url)

        assert result.exit_code == 0, result.stderr

    def test_is_forgotten_by_the_next_command(self, database_url: str, tmp_path: Path) -> None:
        run("--url", database_url, "streams")

        result = run("streams", env={"PENSTOCK_FOLDER": str(tmp_path / "none")})

        assert result.exit_code == 1
        assert "no database in" in result.stderr


def test_a_shell_completes_commands() -> None:
    asked = {"_PENSTOCK_COMPLETE": "complete_bash", "COMP_WORDS": "penstock re", "COMP_CWORD": "1"}

    done = subprocess.run(
        [Path(sys.executable).with_name("penstock")],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        check=False,
    )

    assert sorted(done.stdout.split()) == ["read", "release-writer", "replay", "retain"]


class TestARoleThatMayNot:
    @pytest.fixture
    def url_of(self, database_url: str) -> Iterator[Callable[[str], str]]:
        name = f"stranger_{os.getpid()}"

        def make(member_of: str) -> str:
            membership = f"in role {member_of}" if member_of else ""
            owner.execute(f"create role {name} login {membership}".encode())
            return f"{database_url}&user={name}"

        with psycopg.connect(database_url, autocommit=True) as owner:
            yield make
            owner.execute(f"drop role {name}".encode())

    @pytest.mark.parametrize(
        ("member_of", "command", "needed"),
        [
            ("", ["streams"], "`grant penstock_reader to` the role"),
            ("", ["write", "account-1", "Opened"], "`grant message_store to` the role"),
            ("penstock_reader", ["write", "account-1", "Opened"], "`grant message_store to` the"),
            ("message_store", ["retain", "account-1", "--keep-count", "0"], "the role that owns"),
        ],
    )
    def test_names_the_role_it_takes(
        self, url_of: Callable[[str], str], member_of: str, command: list[str], needed: str
    ) -> None:
        result = run(*command, url=url_of(member_of))

        assert result.exit_code == 1
        assert "permission denied" in result.stderr or "must be" in result.stderr
        assert needed in " ".join(result.stderr.split())
