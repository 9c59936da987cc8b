"""Who may do what: with and without the right to create roles, reading, writing, only reading."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

import penstock
from tests.conftest import Server
from tests.database.databases import FIVE_MESSAGES, NewDatabase, as_role, ask
from tests.groups.school import DeviceSeen


def test_a_role_that_may_not_create_roles_can_install(
    server: Server, no_roles: None, new_role: Callable[..., str], new_database: NewDatabase
) -> None:
    role, url = new_role(), new_database("empty")
    server.administer("alter database {} owner to {}", url.split("/")[3].split("?")[0], role)

    penstock.install(as_role(url, role))

    with penstock.connect(as_role(url, role)) as store:
        store.write_message("account-1", "Opened")
        assert len(store.get_category_messages("$all")) == 1
    assert ask(url, "select to_regrole('message_store'), to_regrole('penstock_reader')") == [
        (None, None)
    ]


@pytest.mark.parametrize("kind", ["penstock", "beside"])
def test_the_role_message_store_reads_and_writes_and_changes_nothing(
    new_database: NewDatabase, kind: str
) -> None:
    url = as_role(new_database(kind), "message_store")
    with penstock.connect(url) as store:
        store.write_message("account-1", "Opened")
        store.write_messages("account-2", [penstock.Message("Opened"), penstock.Message("Closed")])
        with store.transaction() as transaction:
            transaction.write_message("account-1", "Closed", expected_version=0)

        assert len(store.get_stream_messages("account-1")) == 2
        assert len(store.get_category_messages("account")) == 4
        assert store.stream_version("account-2") == 1
    for change in ("update messages set type = 'X'", "delete from messages", "truncate messages"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            ask(url, change)


@pytest.mark.parametrize("kind", ["penstock", "beside"])
def test_the_role_message_store_decides_and_saves_snapshots(
    new_database: NewDatabase, kind: str
) -> None:
    url = as_role(new_database(kind), "message_store")
    seen: list[int] = []
    for _ in range(3):  # each a process of its own, as it were
        with penstock.connect(url) as store:
            store.append(DeviceSeen(device_id="a"))
            devices = penstock.Decider[int, None](
                initial=0,
                evolve=lambda count, event: count + 1,
                decide=lambda count, command: seen.append(count) or [],  # type: ignore[func-returns-value]
                name="devices",
                snapshot_every=1,
            )
            store.decide(devices, None, DeviceSeen.to_conditions(device_id="a"))

    assert seen == [1, 2, 3]
    assert ask(url, "select state from penstock.decider_snapshots") == [("3",)]


@pytest.mark.parametrize("kind", ["penstock", "beside"])
def test_a_penstock_reader_reads_all_and_writes_nothing(
    new_role: Callable[..., str], new_database: NewDatabase, kind: str
) -> None:
    role, owners_url = new_role("in role penstock_reader"), new_database(kind)
    ask(owners_url, FIVE_MESSAGES)
    url = as_role(owners_url, role)

    with penstock.connect(url) as store:
        assert len(store.get_stream_messages("account-0")) == 2
        assert len(store.get_category_messages("account")) == 5
        assert len(store.get_category_messages("$all")) == 5
        assert store.stream_version("account-1") == 2
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            store.write_message("account-1", "T")
    assert ask(url, "select penstock.watermark()") == [(5,)]
    assert ask(url, "select sum(message_count) from stream_summary") == [(5,)]


def test_what_runs_with_the_owners_rights_and_is_open_to_readers_only_reads(
    new_database: NewDatabase,
) -> None:
    open_to_readers = ask(
        new_database("penstock"),
        """
        select proname from pg_proc
        where prosecdef and has_function_privilege('penstock_reader', oid, 'execute')
        order by 1
        """,
    )

    assert [name for (name,) in open_to_readers] == [
        "archive_location",
        "last_position",
        "older_snapshot_open",
        "open_writers",
        "safety_look",
        "watermark",
        "watermark_after",
    ]


@pytest.mark.parametrize("kind", ["penstock", "beside", "genuine"])
def test_a_read_only_store_writes_nothing(new_database: NewDatabase, kind: str) -> None:
    url = new_database(kind)
    ask(url, FIVE_MESSAGES)

    with penstock.connect(penstock.Settings(database_url=url, read_only=True)) as store:
        assert len(store.get_category_messages("account")) == 5
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            store.write_message("account-1", "T")
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction), store.transaction() as tx:
            tx.write_message("account-1", "T")

        assert store.stream_version("account-1") == 2


def test_roles_with_privileges_of_their_own_keep_them_after_taking_over(
    new_role: Callable[..., str], new_database: NewDatabase
) -> None:
    role, url = new_role(), new_database("genuine")
    ask(url, f"grant usage on schema message_store to {role}")
    ask(url, f"grant select, insert on messages to {role}")
    ask(url, f"grant usage, select on sequence messages_global_position_seq to {role}")

    penstock.install(url, take_over=True)

    assert ask(as_role(url, role), FIVE_MESSAGES)
    assert len(ask(as_role(url, role), "select get_category_messages('account')")) == 5
