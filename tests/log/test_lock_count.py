"""How a transaction's locks are counted: its first write is free, and nothing escapes the limit."""

from __future__ import annotations

import pytest

from penstock import Message, Store, new_id
from penstock.errors import CategoryBusy
from tests.log.client import Client

MANY = 600  # more than the locks that one transaction takes before it makes do with coarser ones


@pytest.mark.parametrize("writes", [0, 1, 2, 3])
def test_each_write_counts_as_one(writer: Client, writes: int) -> None:
    for number in range(writes):
        writer.write(f"account-{number}")

    assert writer.value("select penstock.counted_locks()") == writes


def test_a_first_write_that_is_undone_does_not_count(writer: Client) -> None:
    writer.execute("savepoint s")
    writer.write("account-1")

    writer.execute("rollback to savepoint s")

    assert writer.value("select penstock.counted_locks()") == 0


def test_what_was_written_elsewhere_does_not_count(writer: Client) -> None:
    writer.execute("create table elsewhere ()")

    assert writer.value("select penstock.counted_locks()") == 0


@pytest.mark.parametrize("count", [1, 2])
def test_a_category_that_an_append_shares_is_not_waited_for_later(
    store: Store, writer: Client, count: int
) -> None:
    writer.write("note-1")
    with store.transaction() as tx:
        tx.append([Message("note") for _ in range(count)])
        tx.connection.execute("set local lock_timeout = '5s'")

        with pytest.raises(CategoryBusy):  # two who wait for each other's share would never end
            tx.lock_categories("note")
        tx.rollback()


def test_a_retry_that_finds_its_message_counts(store: Store) -> None:
    id = new_id()
    store.write_message("account-1", "Opened", id=id, expected_version=-1)

    with store.transaction() as tx:
        tx.write_message("account-1", "Opened", id=id, expected_version=-1)
        counted = tx.connection.execute("select penstock.counted_locks()").fetchone()

    assert counted == (1,)


def test_many_retries_hold_a_bounded_number_of_locks(store: Store, other: Client) -> None:
    ids = [new_id() for _ in range(MANY)]
    with store.transaction() as tx:
        tx.lock_categories("account")
        for number, id in enumerate(ids):
            tx.write_message(f"account-{number}", "Opened", id=id, expected_version=-1)

    with store.transaction() as tx:
        for number, id in enumerate(ids):
            tx.write_message(f"account-{number}", "Opened", id=id, expected_version=-1)
        held = other.advisory_locks(tx.connection.info.backend_pid)

    assert held <= 502
