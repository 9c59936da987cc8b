"""`penstock init` says what it did, or would do, and why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import penstock
from penstock import Edition
from tests.cli.conftest import on_terminal, run
from tests.database import earlier


def edition(url: str) -> Edition:
    with penstock.connect(url) as store:
        return store.status().edition


def test_init_installs_the_message_store_and_says_so(new_database: Callable[[str], str]) -> None:
    url = new_database("empty")

    result = run("init", "--url", url)

    assert result.exit_code == 0
    assert "Done in " in result.stdout
    assert "- create the schema message_store" in result.stdout
    assert edition(url) is Edition.PENSTOCK


def test_a_second_init_has_nothing_to_do(database_url: str) -> None:
    result = run("init", "--url", database_url)

    assert result.exit_code == 0
    assert "Nothing to do" in result.stdout


def test_a_check_says_what_is_to_do_and_does_nothing(new_database: Callable[[str], str]) -> None:
    url = new_database("empty")

    result = run("init", "--check", "--url", url)

    assert result.exit_code == 1
    assert "To do in " in result.stdout
    assert run("init", "--check", "--url", url).stdout == result.stdout


def test_a_check_of_an_older_schema_names_the_steps(new_database: Callable[[str], str]) -> None:
    url = new_database("empty")
    earlier.install(url, earlier.RELEASE_0_1)

    result = run("init", "--check", "--url", url)

    assert result.exit_code == 1
    assert "- upgrade the schema penstock from version 1 to 3" in result.stdout
    assert "- run 0002_1_columns: The columns that 0.1 added over time" in result.stdout
    assert "clients wait meanwhile" in result.stdout


def test_an_upgrade_on_a_terminal_ends_with_what_was_done(
    new_database: Callable[[str], str],
) -> None:
    url = new_database("empty")
    earlier.install(url, earlier.RELEASE_0_1)

    seen = on_terminal(url, "init")

    assert "Done in" in seen
    assert "upgrade the schema penstock from version 1 to 3" in seen


def test_a_check_of_what_is_in_place_succeeds(database_url: str) -> None:
    result = run("init", "--check", "--url", database_url)

    assert result.exit_code == 0


def test_a_check_where_no_embedded_database_is_makes_none(tmp_path: Path) -> None:
    result = run("init", "--check", "--folder", str(tmp_path / "new"))

    assert result.exit_code == 1
    assert "create a PostgreSQL server" in result.stdout
    assert not (tmp_path / "new").exists()


def test_a_genuine_message_db_keeps_its_functions_and_init_says_why(
    new_database: Callable[[str], str],
) -> None:
    url = new_database("genuine")

    result = run("init", "--url", url)

    assert "- leave Message DB's functions as they are" in result.stdout
    assert "`penstock init --take-over` replaces them" in result.stdout
    assert edition(url) is Edition.ON_MESSAGE_DB


def test_a_genuine_message_db_can_be_taken_over(new_database: Callable[[str], str]) -> None:
    url = new_database("beside")

    result = run("init", "--take-over", "--url", url)

    assert "- replace Message DB's functions by Penstock's" in result.stdout
    assert edition(url) is Edition.PENSTOCK
