"""The archive rebuilds indexes that are mostly empty, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from penstock import Store
from penstock.log import bloated_indexes
from penstock.log.archive import archive
from penstock.log.bloated_indexes import (
    IndexSize,
    drop_unfinished,
    index_sizes,
    rebuild,
    unfinished,
)
from tests.cli.conftest import run
from tests.log.archiving import NOW, archived, in_table, store_with_warehouse

MESSAGES = 20_000
ALL = ["messages_category", "messages_id", "messages_pkey", "messages_stream"]
_FILL = """
insert into message_store.messages (id, stream_name, position, type, data)
select gen_random_uuid(), 'account-' || n / 10, n %% 10, 'Deposited', '{}'
from generate_series(0, %s) n
"""


@pytest.fixture
def store(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store with some messages, whose indexes count as large."""
    monkeypatch.setattr(bloated_indexes, "SMALLEST", 64 * 1024)
    with store_with_warehouse(database_url, tmp_path) as store:
        with connected(store) as connection:
            connection.execute(_FILL, (MESSAGES - 1,))
            connection.execute("vacuum analyze message_store.messages")
            connection.execute("reindex table message_store.messages")
        yield store


@contextmanager
def connected(store: Store) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    with psycopg.connect(store.settings.conninfo(), autocommit=True) as connection:
        yield connection


def sizes(store: Store) -> dict[str, IndexSize]:
    with connected(store) as connection:
        return {one.name: one for one in index_sizes(connection)}


def left_over(store: Store) -> list[str]:
    with connected(store) as connection:
        return unfinished(connection)


def eventually(holds: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_estimate_fits_indexes_that_were_just_built(store: Store) -> None:
    found = sizes(store)

    assert sorted(found) == ALL
    for one in found.values():
        assert 0.75 < one.needed / one.size < 1.25
        assert not one.is_bloated


def test_a_large_archive_leaves_indexes_as_small_as_what_is_left(store: Store) -> None:
    before = sizes(store)

    moved = archived(store, "account", batch_size=MESSAGES)

    assert moved.moved == MESSAGES * 9 // 10
    assert sorted(moved.rebuilt) == ALL
    for name, one in sizes(store).items():
        assert one.size < before[name].size / 4
    assert left_over(store) == []
    read = [one.global_position for one in store.read_category("account")]
    assert read == list(range(1, MESSAGES + 1))


def test_it_can_be_switched_off(store: Store) -> None:
    before = sizes(store)

    moved = archive(store.context, "account", NOW, batch_size=MESSAGES, max_load=1, reindex=False)

    assert moved.rebuilt == ()
    assert {name: one.size for name, one in sizes(store).items()} == {
        name: one.size for name, one in before.items()
    }


def test_a_small_archive_rebuilds_nothing(store: Store) -> None:
    store.write_message("order-1", "Placed")
    store.write_message("order-1", "Placed")

    moved = archived(store, "order")

    assert (moved.moved, moved.rebuilt) == (1, ())


def test_progress_names_each_index(store: Store) -> None:
    named: list[str] = []

    archive(store.context, "account", NOW, batch_size=MESSAGES, max_load=1, reindexing=named.append)

    assert sorted(named) == ALL


def test_writers_go_on_while_a_rebuild_waits_for_a_transaction(store: Store) -> None:
    rebuilt: list[str] = []

    def rebuild_one() -> None:
        with connected(store) as connection:
            rebuilt.extend(rebuild(connection, ["messages_stream"]))

    with psycopg.connect(store.settings.conninfo()) as holder, connected(store) as other:
        holder.execute("select count(*) from message_store.messages")
        thread = threading.Thread(target=rebuild_one)
        thread.start()
        waiting = "select count(*) from pg_locks where not granted and locktype = 'virtualxid'"
        eventually(lambda: other.execute(waiting).fetchone() == (1,))
        with store.transaction() as tx:
            tx.write_message("account-1", "Deposited", expected_version=9)
        assert store.get_last_stream_message("account-1") is not None
        assert left_over(store) == []  # one that is being built is not left over
        assert thread.is_alive()
        holder.rollback()
        thread.join(20)
    assert rebuilt == ["messages_stream"]


def test_a_transaction_that_stays_open_does_not_hold_up_the_archive(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(bloated_indexes._SETTINGS, "lock_timeout", "200ms")
    with psycopg.connect(store.settings.conninfo()) as holder:
        holder.execute("lock table message_store.messages in row exclusive mode")  # as writers do

        moved = archived(store, "account", batch_size=MESSAGES)

        assert (moved.moved, moved.rebuilt) == (MESSAGES * 9 // 10, ())
        assert "was not rebuilt: canceling statement due to lock timeout" in caplog.text
    assert left_over(store) == ["messages_category_ccnew"]
    store.write_message("account-1", "Deposited")

    again = archived(store, "account", batch_size=MESSAGES)

    assert (again.moved, sorted(again.rebuilt)) == (1, ALL)
    assert left_over(store) == []


def test_what_a_killed_rebuild_leaves_is_named_by_the_doctor_and_dropped_by_the_next_run(
    store: Store,
) -> None:
    with psycopg.connect(store.settings.conninfo()) as holder, connected(store) as other:
        holder.execute("lock table message_store.messages in row exclusive mode")  # as writers do
        pid = os.fork()
        if pid == 0:
            try:
                archived(store, "account", batch_size=MESSAGES)
            finally:
                os._exit(0)
        waiting = "select count(*) from pg_locks where not granted and locktype = 'virtualxid'"
        eventually(lambda: other.execute(waiting).fetchone() == (1,), seconds=60)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        eventually(lambda: left_over(store) == ["messages_category_ccnew"])
    named = run("doctor", url=store.settings.conninfo())
    assert "message_store.messages_category_ccnew: left by an interrupted rebuild" in named.stdout

    again = archived(store, "account")

    assert (again.moved, sorted(again.rebuilt)) == (0, ALL)
    assert left_over(store) == []
    assert len(in_table(store)) == MESSAGES // 10


def test_two_processes_do_not_rebuild_at_once(store: Store) -> None:
    with connected(store) as one, connected(store) as other:
        with bloated_indexes._alone(other):
            assert rebuild(one, ["messages_id"]) == []
        assert rebuild(one, ["messages_id"]) == ["messages_id"]


def test_an_index_of_somebody_else_that_is_invalid_is_left_alone(store: Store) -> None:
    with connected(store) as connection:
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute(
                "create unique index concurrently own on message_store.messages (type)"
            )

        assert drop_unfinished(connection) == []
