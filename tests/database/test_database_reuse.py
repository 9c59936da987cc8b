"""A database is used again in its fresh state, or not at all."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import penstock
from tests.conftest import Server
from tests.database_reuse import FreshState, rename
from tests.log.waiting import wake_ups_of


class Opened(penstock.TypedMessage, type="reuse.opened"):
    account: str


@pytest.fixture
def name(server: Server) -> Iterator[str]:
    """A fresh database, which is dropped at the end whatever became of it."""
    made = server.create_database(server.template("penstock"))
    yield made
    server.drop_database(made)


@pytest.fixture
def cleaner(server: Server, name: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(server.url(name), autocommit=True) as connection:
        yield connection


@pytest.fixture
def fresh(server: Server, name: str) -> FreshState:
    return FreshState.of(server.url(name))


def test_rows_and_positions_are_as_in_a_fresh_one(
    server: Server, name: str, fresh: FreshState, cleaner: psycopg.Connection[Any]
) -> None:
    url = server.url(name)
    with penstock.connect(url) as store:
        store.write_message("account-1", "Opened")
        store.outbox.enqueue("mail", {})

    restored = fresh.restore(cleaner)

    with penstock.connect(url) as store:
        assert restored
        assert store.get_category_messages("$all") == []
        assert store.outbox.list() == []
        store.write_message("account-1", "Opened")
        assert [one.global_position for one in store.get_category_messages("account")] == [1]


def test_whoever_still_uses_it_is_sent_away_and_does_not_find_it_again(
    server: Server, name: str
) -> None:
    with psycopg.connect(server.url(name)) as forgotten:
        forgotten.execute("lock table message_store.messages")

        with psycopg.connect(server.url("postgres"), autocommit=True) as administrator:
            assert rename(administrator, name, f"{name}_again")
        with pytest.raises(psycopg.OperationalError, match="terminating connection"):
            forgotten.execute("select 1")
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(server.url(name))
    server.drop_database(f"{name}_again")


@pytest.mark.parametrize(
    "change",
    [
        "create table public.extra ()",
        "drop view message_store.type_summary cascade",
        "alter table message_store.messages disable trigger user",
        "create or replace function message_store.category(stream_name varchar) returns varchar"
        " language sql immutable as 'select stream_name'",
        "grant select on penstock.outbox to public",
        "revoke execute on function set_config(text, text, boolean) from public",
        "alter sequence message_store.messages_global_position_seq increment 2",
        "update penstock.installations set version = version + 1",
        "do $$ begin execute format('alter database %I set work_mem = ''1MB''',"
        " current_database()); end $$",
    ],
)
def test_one_that_was_changed_is_not_kept(
    server: Server, name: str, fresh: FreshState, cleaner: psycopg.Connection[Any], change: str
) -> None:
    with psycopg.connect(server.url(name), autocommit=True) as connection:
        connection.execute(change.encode())

    assert not fresh.restore(cleaner)


def test_one_that_has_grown_is_not_kept(
    server: Server, name: str, fresh: FreshState, cleaner: psycopg.Connection[Any]
) -> None:
    with penstock.connect(server.url(name)) as store:
        notes = [penstock.Message("Noted", {"text": str(number)}) for number in range(5000)]
        store.write_messages("account-1", notes)

    assert not fresh.restore(cleaner)


def test_a_database_with_declared_types_is_as_a_fresh_one(
    server: Server, name: str, fresh: FreshState, cleaner: psycopg.Connection[Any]
) -> None:
    with penstock.connect(server.url(name)) as store:
        store.append(Opened(account="1"))

    restored = fresh.restore(cleaner)

    triggers = cleaner.execute("select tgname from pg_trigger where tgname ~ '_attributes$'")
    assert restored
    assert triggers.fetchall() == []


CHANGES_TO_A_SESSION = (
    "set application_name = 'changed'",
    "set role pg_monitor",
    "listen changes",
    "select pg_advisory_lock(1)",
    "create temporary table changed ()",
)
STATE_OF_A_SESSION = """
select pg_backend_pid(), current_setting('application_name'), current_user,
  (select count(*) from pg_listening_channels()),
  (select count(*) from pg_locks where pid = pg_backend_pid() and locktype = 'advisory'),
  to_regclass('pg_temp.changed'), current_setting('timezone'),
  current_setting('statement_timeout')
"""


def test_a_database_with_the_catalog_of_a_lake_is_as_a_fresh_one(
    fresh: FreshState, cleaner: psycopg.Connection[Any]
) -> None:
    with psycopg.connect(cleaner.info.dsn, autocommit=True) as connection:
        for name in ("iceberg_tables", "iceberg_namespace_properties"):
            connection.execute(f"create table {name} (id text primary key)".encode())
            connection.execute(f"insert into {name} values ('one')".encode())

    restored = fresh.restore(cleaner)

    assert restored
    assert fresh == FreshState.of(cleaner.info.dsn)


def test_a_session_of_a_store_is_used_again_in_the_state_of_a_new_one(
    server: Server, database_url: str
) -> None:
    with server.store(database_url, penstock.connect) as first, first.transaction() as transaction:
        new = transaction.connection.execute(STATE_OF_A_SESSION).fetchone()
        for change in CHANGES_TO_A_SESSION:
            transaction.connection.execute(change.encode())
        changed = transaction.connection.execute(STATE_OF_A_SESSION).fetchone()

    with (
        server.store(database_url, penstock.connect) as second,
        second.transaction() as transaction,
    ):
        again = transaction.connection.execute(STATE_OF_A_SESSION).fetchone()

    assert changed != new
    assert again == new


def test_a_session_that_a_test_left_in_a_transaction_is_not_used_again(
    server: Server, database_url: str
) -> None:
    with server.store(database_url, penstock.connect) as first:
        left = first.begin_transaction()
        pid = left.connection.info.backend_pid

    with (
        server.store(database_url, penstock.connect) as second,
        second.transaction() as transaction,
    ):
        assert transaction.connection.info.backend_pid != pid


def test_the_connection_of_wake_ups_is_used_again_and_listens_again(
    server: Server, database_url: str
) -> None:
    with server.store(database_url, penstock.connect) as first:
        session = _listening_session(first)

    with server.store(database_url, penstock.connect) as second:
        assert _listening_session(second) == session


def _listening_session(store: penstock.Store) -> int:
    wake_ups = wake_ups_of(store)
    wake_ups.listen()
    while not wake_ups.is_listening:
        time.sleep(0.01)
    return wake_ups._pid
