"""`penstock status` answers the question of the night: who holds everybody up?"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

import penstock
from penstock import Store, UnavailableError
from tests.cli.conftest import Run, run
from tests.telemetry.busy import an_hour_passes, busy


def test_status_tells_where_and_what_the_store_is(penstock: Run, store: Store) -> None:
    store.write_message("account-1", "Opened")

    result = penstock("status")

    assert result.exit_code == 0
    for fact in (
        f"where           {store.settings.where()}",
        "edition         penstock: all functions are Penstock's",
        "schema version  3; this client's is 3",
        "Message DB      1.3.0",
        "server          PostgreSQL ",
        "head            1, ",
        "watermark       1, not behind",
        "pool            1 to 10 connections, 30 s to wait for one",
    ):
        assert fact in result.stdout
    assert "Open writers" not in result.stdout


def test_status_names_the_writer_that_holds_readers_back(penstock: Run, store: Store) -> None:
    with store.transaction() as open_writer:
        open_writer.write_message("account-1", "Opened")
        store.write_message("account-2", "Opened")

        result = penstock("status")

        pid = open_writer.connection.info.backend_pid
        assert "watermark       0, 2 behind" in result.stdout
        assert f"{pid}  0 s  idle in transaction  penstock     postgres" in result.stdout
        assert f"penstock release-writer {pid}" in result.stdout
        assert "select message_store.write_message(" in result.stdout


def test_release_writer_shows_an_open_writer_and_ends_it(penstock: Run, store: Store) -> None:
    hung = store.begin_transaction()
    hung.write_message("account-1", "Opened")
    pid = hung.connection.info.backend_pid
    store.write_message("account-2", "Opened")

    refused = penstock("release-writer", str(pid), stdin="n\n")
    still_open = len(store.status().open_writers)
    result = penstock("release-writer", str(pid), "--yes")

    assert (refused.exit_code, still_open, result.exit_code) == (1, 1, 0)
    assert f"pid {pid} (penstock, idle in transaction), open for" in result.stderr
    assert "last statement: select message_store.write_message(" in result.stderr
    assert [one.stream_name for one in store.get_category_messages("account")] == ["account-2"]
    with pytest.raises(UnavailableError):
        hung.commit()


def test_release_writer_refuses_what_is_no_open_writer(penstock: Run, store: Store) -> None:
    with store.transaction() as reader:
        reader.get_category_messages("account")
        pid = reader.connection.info.backend_pid

        result = penstock("release-writer", str(pid), "--yes")

    assert result.exit_code == 1
    assert f"server process {pid} has no open transaction that has written" in result.stderr


def test_status_as_json_has_the_same_facts(
    penstock: Run, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_POOL_MAX_SIZE", "7")
    with store.transaction() as open_writer:
        open_writer.write_message("account-1", "Opened")
        store.write_message("account-2", "Opened")

        found = json.loads(penstock("status", "--json").stdout)

        (writer,) = found.pop("open_writers")
        figures = {one["name"]: one for one in found.pop("figures")}
        assert found == {
            "where": store.settings.where(),
            "edition": "penstock",
            "schema_version": 3,
            "client_schema_version": 3,
            "message_store_version": "1.3.0",
            "server_version": found["server_version"],
            "standby": False,
            "head": 2,
            "watermark": 0,
            "behind": 2,
            "archived_to": None,
            "archived_messages": 0,
            "pool": {"min_size": 1, "max_size": 7, "timeout_ms": 30000},
        }
        assert writer.pop("age_seconds") >= 0
        assert writer.pop("last_statement").startswith("select message_store.write_message(")
        assert writer == {
            "pid": open_writer.connection.info.backend_pid,
            "role": "postgres",
            "application_name": "penstock",
            "state": "idle in transaction",
            "bound": 1,
        }
        assert figures["watermark.age"]["detail"]["pid"] == writer["pid"]
        assert figures["watermark.behind"] == {
            "name": "watermark.behind",
            "value": 2.0,
            "detail": {},
        }


def test_status_tells_who_lags_behind_and_what_is_set_aside(penstock: Run, store: Store) -> None:
    busy(store)
    an_hour_passes(store)

    shown = penstock("status").stdout.splitlines()

    header = next(number for number, line in enumerate(shown) if line.startswith("reader "))
    assert [" ".join(line.split()) for line in shown[header:]] == [
        "reader lag parked failed oldest claim claimed",
        "consumer order mailer 1 h 0 min 1 - -",
        "session queue-mail reader 1 h 0 min - - -",
        "group group 1 h 0 min 1 - 1 h 0 min device_id:held by w-1",
        "outbox 0 s - - -",
        "outbox mail - - 1 -",
    ]


def test_status_shows_no_figure_of_the_log_twice(penstock: Run) -> None:
    result = penstock("status")

    assert result.stdout.count("watermark") == 1
    assert result.stdout.splitlines()[-1].split() == ["outbox", "0", "s", "-", "-", "-"]


@pytest.mark.parametrize(
    ("edition", "watermark"), [("beside", "1, not behind"), ("genuine", "none: genuine Message DB")]
)
def test_status_works_on_a_message_db(
    new_database: Callable[[str], str], edition: str, watermark: str
) -> None:
    url = new_database(edition)
    with penstock.connect(url) as store:
        store.write_message("account-1", "Opened")

    result = run("status", url=url)

    assert result.exit_code == 0
    assert "head            1, " in result.stdout
    assert f"watermark       {watermark}" in result.stdout


def test_status_of_an_empty_database_says_what_to_do(new_database: Callable[[str], str]) -> None:
    result = run("status", url=new_database("empty"))

    assert result.exit_code == 1
    assert "holds no message store: run `penstock init`" in result.stderr
