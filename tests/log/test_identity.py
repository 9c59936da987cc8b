"""The log has an identity, and a truncated log is another incarnation of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

import penstock
from penstock import Store
from penstock.errors import LogChanged, UnsupportedEdition, ValidationError
from tests.database.test_backup import dump_and_restore


def identity(url: str) -> tuple[Any, ...]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("set role penstock_reader")
        row = connection.execute("select id, incarnation from penstock.log_identity()").fetchone()
        assert row is not None
        return row


def test_each_database_has_its_own_for_good(new_database: Callable[[str], str]) -> None:
    empty, other = new_database("empty"), new_database("empty")
    penstock.install(empty)
    penstock.install(other)
    first = identity(empty)

    with psycopg.connect(empty) as connection:  # so that it is installed again
        connection.execute("drop function penstock.log_identity()")
    assert penstock.install(empty).needed

    assert identity(empty) == first
    assert not set(first) & set(identity(other))


def test_a_restored_copy_is_the_same_log(
    new_database: Callable[[str], str], tmp_path: Path
) -> None:
    source, target = new_database("penstock"), new_database("empty")

    dump_and_restore(source, target, tmp_path / "dump")

    assert identity(target) == identity(source)


@pytest.mark.parametrize("edition", ["penstock", "beside"])
def test_a_truncated_log_is_another_incarnation(
    new_database: Callable[[str], str], edition: str
) -> None:
    url = new_database(edition)
    before = identity(url)

    with psycopg.connect(url) as connection:
        connection.execute("truncate message_store.messages")

    after = identity(url)
    assert after[0] == before[0]
    assert after[1] != before[1]


@pytest.fixture
def restored(new_database: Callable[[str], str], tmp_path: Path) -> tuple[str, str]:
    """A log of 10 orders that grew to 60 and was restored to the 10; and the token of the 60th."""
    original, restored = new_database("penstock"), new_database("empty")
    with penstock.connect(original) as store:
        write_orders(store, 10)
        dump_and_restore(original, restored, tmp_path / "dump")
        write_orders(store, 50)
        *_, last = store.read_category("order")
    assert last.global_position == 60
    return restored, last.resume_token


def write_orders(store: Store, count: int) -> None:
    for _ in range(count):
        store.write_message("order-1", "Placed")


@pytest.mark.parametrize("written", [0, 60])
async def test_who_resumes_on_a_restored_log_gets_an_error(
    restored: tuple[str, str], written: int
) -> None:
    url, token = restored
    with penstock.connect(url) as store:
        write_orders(store, written)

        with pytest.raises(LogChanged, match=r"order: message .* position 60, is not there"):
            list(store.read_category("order", after=token))
        with pytest.raises(LogChanged):
            next(store.follow_category("$all", after=token))
        with pytest.raises(LogChanged):
            store.get_category_messages("order", after=token)
    async with await penstock.connect_async(url) as async_store:
        with pytest.raises(LogChanged):
            [one async for one in async_store.read_category("order", after=token)]
        with pytest.raises(LogChanged):
            await anext(async_store.follow_category("order", after=token))


def test_a_message_that_is_there_is_resumed_after(store: Store) -> None:
    write_orders(store, 3)
    first = store.get_category_messages("order")[0]

    found = store.get_category_messages("order", after=first.resume_token)

    assert [one.global_position for one in found] == [2, 3]
    assert list(store.read_category("order", after=first.resume_token, batch_size=1)) == found


def test_a_message_that_retention_removed_is_resumed_after(store: Store) -> None:
    write_orders(store, 5)
    second = store.get_category_messages("order")[1]
    store.admin.retain("order", keep_count=2)

    found = list(store.read_category("order", after=second.resume_token))

    assert [one.global_position for one in found] == [4, 5]


def test_a_follower_notices_that_the_log_is_another(store: Store, database_url: str) -> None:
    write_orders(store, 3)
    following = store.follow_category("order", batch_size=3)
    assert [next(following).global_position for _ in range(3)] == [1, 2, 3]

    with psycopg.connect(database_url) as connection:
        connection.execute("truncate message_store.messages restart identity")
    write_orders(store, 5)

    with pytest.raises(LogChanged):
        next(following)


def test_a_follower_goes_on_when_what_it_read_is_deleted_by_hand(
    store: Store, database_url: str
) -> None:
    write_orders(store, 3)
    following = store.follow_category("order", batch_size=3)
    assert [next(following).global_position for _ in range(3)] == [1, 2, 3]

    with psycopg.connect(database_url) as connection:
        connection.execute("delete from message_store.messages")
    write_orders(store, 1)

    assert next(following).global_position == 4


@pytest.mark.parametrize("token", ["", "60", "60@", "0@018f6d1c-7a2b-7c3d-8e4f-5a6b7c8d9e0f", 60])
def test_what_is_no_token_is_refused(store: Store, token: Any) -> None:
    with pytest.raises(ValidationError, match="the resume_token of a message, such as '60@"):
        store.get_category_messages("order", after=token)


def test_a_genuine_message_db_has_no_tokens(new_database: Callable[[str], str]) -> None:
    with penstock.connect(new_database("genuine")) as store:
        write_orders(store, 3)
        token = store.get_category_messages("order")[0].resume_token

        with pytest.raises(UnsupportedEdition):
            store.get_category_messages("order", after=token)
        assert len(list(store.read_category("order", batch_size=1))) == 3
