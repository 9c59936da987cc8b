"""Rows that come by replication, or in its role, are announced, checked and indexed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import penstock
from penstock import (
    ConcurrentAppendError,
    QueryCondition,
    Store,
    TypedMessage,
)
from penstock.database.embedded import EmbeddedServer, start
from tests.log.client import Client
from tests.racing import wait_until, wait_until_blocked
from tests.servers import FAST

INDEXED = (
    "select count(*) from penstock.message_attributes where key_pair <> penstock.removal_key()"
)
INSERT = (
    "insert into message_store.messages (stream_name, position, type, data)"
    " values ('room-1', 0, 'applied.heated', '{\"room\": \"1\"}')"
)
BY_HAND = (
    "insert into message_store.messages (global_position, stream_name, position, type, data)"
    " values (%s, 'room-2', 0, 'applied.heated', '{\"room\": \"1\"}')"
)
# where a transaction that is applied waits after each row, for as long as somebody holds the lock
STOP_APPLYING = """
create function public.stop() returns trigger language plpgsql as $$
begin
  perform pg_advisory_xact_lock_shared(4711);
  return null;
end
$$;

create trigger z_stop after insert on message_store.messages
  for each row execute function public.stop();
alter table message_store.messages enable replica trigger z_stop;
"""


class Heated(TypedMessage, type="applied.heated"):
    room: str


ROOM = [QueryCondition("applied.heated", "room", "1")]


class TestASessionInTheRoleOfAReplica:
    @pytest.fixture
    def replica(self, store: Store) -> Iterator[Client]:
        store.declare(Heated)
        with psycopg.connect(store.settings.conninfo(), autocommit=True) as connection:
            connection.execute("set session_replication_role = replica")
            yield Client(connection)

    def test_writes_messages_that_a_guard_sees(self, store: Store, replica: Client) -> None:
        guard = store.read(ROOM)[1]
        replica.execute(INSERT)

        with pytest.raises(ConcurrentAppendError):
            store.append(Heated(room="1"), guard)

        assert len(store.read(ROOM)[0]) == 1

    def test_appends(self, store: Store, replica: Client) -> None:
        store.using(replica.connection).append([Heated(room="1"), Heated(room="1")])
        store.using(replica.connection).append(Heated(room="1"))

        assert len(store.read(ROOM)[0]) == 3

    def test_removes_messages_from_the_index(self, store: Store, replica: Client) -> None:
        store.append(Heated(room="1"))

        replica.execute("delete from message_store.messages")

        assert replica.value(INDEXED) == 0

    @pytest.mark.parametrize("position", [1, 4])
    def test_cannot_write_below_what_readers_may_have_read(
        self, store: Store, replica: Client, position: int
    ) -> None:
        for number in range(5):
            store.write_message(f"other-{number}", "Noted")
        replica.execute("delete from message_store.messages where global_position in (1, 4)")

        with pytest.raises(psycopg.Error) as raised:
            replica.execute(BY_HAND, position)

        assert raised.value.sqlstate == "PS006"

    def test_is_announced(self, store: Store, replica: Client) -> None:
        replica.execute("begin")
        replica.execute(INSERT)

        store.write_message("other-1", "Noted")

        assert store.get_category_messages("$all") == []
        replica.execute("commit")
        assert len(store.get_category_messages("$all")) == 2


@pytest.fixture(scope="module")
def logical_server() -> Iterator[EmbeddedServer]:
    """A server that replicates logically."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-"))
    with start(folder, settings={**FAST, "wal_level": "logical"}) as server:
        yield server
    shutil.rmtree(folder, ignore_errors=True)


class TestASubscription:
    """Logical replication applies rows without firing statement triggers."""

    @pytest.fixture
    def source(self, logical_server: EmbeddedServer) -> Iterator[Client]:
        with self.database(logical_server, "source") as client:
            client.execute("create publication log for table message_store.messages")
            client.execute("select pg_create_logical_replication_slot('log', 'pgoutput')")
            yield client

    @pytest.fixture
    def target(self, logical_server: EmbeddedServer, source: Client) -> Iterator[Client]:
        with self.database(logical_server, "target") as client:
            with penstock.connect(logical_server.url_for("target")) as store:
                store.declare(Heated)
            address = source.connection.info.dsn
            client.execute(
                f"create subscription log connection '{address}' publication log"
                " with (create_slot = false, slot_name = log, copy_data = false)"
            )
            yield client
            client.execute("drop subscription log")

    @staticmethod
    def database(server: EmbeddedServer, name: str) -> _Database:
        return _Database(server, name)

    def test_indexes_and_announces_what_it_applies(
        self, logical_server: EmbeddedServer, source: Client, target: Client
    ) -> None:
        url = logical_server.url_for("target")
        for room in ("1", "2", "1"):
            source.execute(
                "select penstock.append_one(null, gen_random_uuid(), 'applied.heated', %s::jsonb)",
                f'{{"room": "{room}"}}',
            )
        wait_until(url, "select count(*) = 3 from message_store.messages")

        with penstock.connect(url) as store:
            seen, guard = store.read(ROOM)
            followed = [one.global_position for one in store.get_category_messages("$all")]
            source.execute(INSERT)
            wait_until(url, "select count(*) = 4 from message_store.messages")
            with pytest.raises(ConcurrentAppendError):
                store.append(Heated(room="1"), guard)
            mine = store.write_message("note-1", "Noted")

        assert [one.global_position for one in seen] == [1, 3]
        assert followed == [1, 2, 3]
        assert mine == 0
        assert target.read() == [1, 2, 3, 4, 5]

    def test_waits_for_a_decision_in_flight(
        self, logical_server: EmbeddedServer, source: Client, target: Client
    ) -> None:
        url = logical_server.url_for("target")
        source.execute("select setval('message_store.messages_global_position_seq', 100)")
        applied = "from message_store.messages where stream_name = 'room-1'"
        with penstock.connect(url) as store, store.transaction() as decision:
            guard = decision.append(Heated(room="1"), store.read(ROOM)[1]).guard
            source.execute(INSERT)
            wait_until(
                url,
                f"select exists (select {applied}) or exists (select from pg_stat_activity"
                " where datname = current_database() and wait_event_type = 'Lock')",
            )
            meanwhile = target.value(f"select count(*) {applied}")
            decision.commit()
            wait_until(url, f"select exists (select {applied})")

            with pytest.raises(ConcurrentAppendError):
                store.append(Heated(room="1"), guard)

        assert meanwhile == 0

    def test_stops_at_a_position_that_readers_have_passed(
        self, logical_server: EmbeddedServer, source: Client, target: Client
    ) -> None:
        url = logical_server.url_for("target")
        with psycopg.connect(source.connection.info.dsn) as late:
            late.execute(INSERT)
            source.write("other-1")  # is committed first, at a higher position
            wait_until(url, "select count(*) = 1 from message_store.messages")
        wait_until(
            url,
            "select apply_error_count > 0 or (select count(*) > 1 from message_store.messages)"
            " from pg_stat_subscription_stats where subname = 'log'",
        )

        assert target.read() == [2]

    def test_holds_back_what_comes_after_it_until_it_ends(
        self, logical_server: EmbeddedServer, source: Client, target: Client
    ) -> None:
        url = logical_server.url_for("target")
        target.execute(STOP_APPLYING)
        with psycopg.connect(url, autocommit=True) as stopping:
            stopping.execute("select pg_advisory_lock(4711)")
            source.execute(INSERT)
            wait_until_blocked(url)
            target.write("other-1")
            meanwhile = target.read()
        wait_until(url, "select count(*) = 2 from message_store.messages")

        assert (meanwhile, target.read()) == ([], [1, 2])

    def test_takes_messages_out_of_the_index(
        self, logical_server: EmbeddedServer, source: Client, target: Client
    ) -> None:
        url = logical_server.url_for("target")
        source.execute(INSERT)
        wait_until(url, "select count(*) = 2 from penstock.message_attributes")

        source.execute("delete from message_store.messages")
        wait_until(url, "select count(*) = 0 from message_store.messages")

        assert target.value(INDEXED) == 0

    def test_is_truncated_with_its_source(
        self, logical_server: EmbeddedServer, source: Client, target: Client
    ) -> None:
        url = logical_server.url_for("target")
        source.execute(INSERT)
        wait_until(url, "select count(*) = 2 from penstock.message_attributes")

        source.execute("truncate message_store.messages")
        wait_until(url, "select count(*) = 0 from message_store.messages")

        assert target.value("select count(*) from penstock.message_attributes") == 0


class _Database:
    """A database with Penstock installed, for the length of a `with` block."""

    def __init__(self, server: EmbeddedServer, name: str) -> None:
        self._server, self._name = server, name

    def __enter__(self) -> Client:
        self._administer(f"create database {self._name}")
        url = self._server.url_for(self._name)
        penstock.install(url)
        self._connection = psycopg.connect(url, autocommit=True)
        return Client(self._connection)

    def __exit__(self, *_: object) -> None:
        with psycopg.connect(self._server.url_for("postgres"), autocommit=True) as connection:
            connection.execute(
                "select pg_drop_replication_slot(slot_name) from pg_replication_slots"
                " where database = %s and not active",
                (self._name,),
            )
        self._connection.close()
        self._administer(f"drop database {self._name} with (force)")

    def _administer(self, statement: str) -> None:
        with psycopg.connect(self._server.url_for("postgres"), autocommit=True) as connection:
            connection.execute(statement.encode())
