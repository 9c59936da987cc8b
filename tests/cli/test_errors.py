"""A command that fails says why in one line, with an exit code, and never shows a password."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.cli.conftest import Run, run

AWAY = "postgresql://ada:hunter2@127.0.0.1:1/shop"


def test_an_error_is_one_line_on_stderr() -> None:
    result = run("status", "--url", AWAY)

    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("penstock: PostgreSQL at 127.0.0.1:1/shop cannot be reached")
    assert len(result.stderr.splitlines()) == 1


def test_an_error_of_the_server_is_one_line_too(penstock: Run, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("alter table message_store.messages rename column data to datum")

    result = penstock("read", "account-1")

    assert result.exit_code == 1
    assert result.stderr.startswith("penstock: PostgreSQL: column ")
    assert len(result.stderr.splitlines()) == 1


def test_a_traceback_is_shown_on_request_only() -> None:
    result = run("status", "--url", AWAY, env={"PENSTOCK_DEBUG": "1"})

    assert result.exit_code == 1
    assert result.stderr.startswith("Traceback (most recent call last)")


@pytest.mark.parametrize(
    "arguments",
    [
        ["status", "--url", AWAY],
        ["status", AWAY],
        ["status", "--url", "ada:hunter2@host/shop"],
        ["status", "--url", "mysql://ada:hunter2@host/shop"],
        ["status", "--url", "postgresql://ada:se@hunter2@host/shop"],
        ["status", "--url", "postgresql://ada:se/hunter2@host/shop"],
        ["status", "--url", "postgresql://host/shop?pasword=hunter2"],
        ["status", "--url", "host=127.0.0.1 port=1 password=hunter2"],
        ["status", "--url", "host=127.0.0.1 port=1 pasword=hunter2"],
        ["status", "--url", "host=127.0.0.1 port=1 password='the hunter2"],
        ["status", "--url", "host=127.0.0.1 port=1 password=the hunter2"],
    ],
)
@pytest.mark.parametrize("debug", ["0", "1"])
def test_a_password_is_never_shown(arguments: list[str], debug: str) -> None:
    result = run(*arguments, env={"PENSTOCK_DEBUG": debug})

    assert result.exit_code in (1, 2)
    assert result.output
    assert "hunter2" not in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing"],
        ["status", "--nothing"],
        ["status", "--url", "nonsense"],
        ["status", "--url", AWAY, "--folder", "here"],
        ["status", "--folder", ""],
    ],
)
def test_bad_usage_has_an_exit_code_of_its_own(arguments: list[str]) -> None:
    result = run(*arguments)

    assert result.exit_code == 2
    assert result.stderr


def test_a_setting_that_is_no_good_is_named() -> None:
    result = run("status", env={"PENSTOCK_POOL_MAX_SIZE": "many"})

    assert result.exit_code == 2
    assert result.stderr == "penstock: PENSTOCK_POOL_MAX_SIZE must be an integer; got 'many'\n"


@pytest.mark.parametrize(
    "command", [["status"], ["read", "account"], ["streams"], ["categories"]], ids=lambda c: c[0]
)
def test_looking_into_a_folder_without_a_database_makes_none(
    command: list[str], tmp_path: Path
) -> None:
    result = run(*command, "--folder", str(tmp_path / "wrong"))

    assert result.exit_code == 1
    assert f"no database in {tmp_path / 'wrong'}" in result.stderr
    assert not (tmp_path / "wrong").exists()


def test_a_folder_that_is_given_wins_over_the_environment(
    database_url: str, tmp_path: Path
) -> None:
    result = run("status", "--folder", str(tmp_path / "wrong"), url=database_url)

    assert result.exit_code == 1
    assert "no database in" in result.stderr


def test_a_url_that_is_given_wins_over_the_environment(database_url: str) -> None:
    elsewhere = {"PENSTOCK_URL": AWAY, "PENSTOCK_HOST": "127.0.0.1", "PENSTOCK_PORT": "1"}

    result = run("status", "--url", database_url, env=elsewhere)

    assert result.exit_code == 0


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_its_libraries_the_command_says_how_to_get_them(missing: str) -> None:
    script = f"import sys; sys.modules[{missing!r}] = None; import penstock.cli as c; c.main()"

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert done.stderr == (
        f"penstock: {missing} is not installed: pip install 'penstock-log[cli]'\n"
    )


def test_without_a_command_the_help_is_shown() -> None:
    result = run(columns=80)

    for command in ("init", "status", "write", "read", "streams", "categories", "version"):
        assert command in result.output
