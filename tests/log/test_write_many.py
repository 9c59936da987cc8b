"""Messages to many streams in one call: whole or not at all, in order, and once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import psycopg
import pytest

import penstock
from penstock import AsyncStore, Message, Store, Transaction, TypedMessage
from penstock.errors import CategoryBusy, DuplicateMessageId, ValidationError, WrongExpectedVersion
from tests.racing import wait_until_blocked


class SeatTaken(TypedMessage, type="write_many.seat_taken"):
    show: str


def numbered(*streams: str) -> list[tuple[str, Message]]:
    return [(name, Message("Counted", {"n": n})) for n, name in enumerate(streams)]


def test_each_message_goes_to_its_stream_in_the_order_given(any_store: Store) -> None:
    any_store.write_message("a-1", "Before")

    positions = any_store.write_many(numbered("a-1", "b-1", "a-1", "a-2", "b-1"))

    assert positions == [1, 0, 2, 0, 1]
    found = [*any_store.read_category("a"), *any_store.read_category("b")]
    ours = sorted((m for m in found if m.type == "Counted"), key=lambda m: m.global_position)
    assert [m.data["n"] for m in ours] == [0, 1, 2, 3, 4]
    assert [m.stream_name for m in ours] == ["a-1", "b-1", "a-1", "a-2", "b-1"]
    assert [m.position for m in ours] == positions


async def test_the_async_store_has_it_too(async_store: AsyncStore) -> None:
    assert await async_store.write_many(numbered("a-1", "b-1", "a-1")) == [0, 0, 1]
    async with async_store.transaction() as transaction:
        assert await transaction.write_many(numbered("a-1")) == [2]


def test_a_retry_returns_the_first_positions_whatever_the_versions(any_store: Store) -> None:
    messages = numbered("a-1", "b-1", "a-1")
    first = any_store.write_many(messages, expected_versions={"a-1": -1})
    any_store.write_message("a-1", "Later")

    again = any_store.write_many(messages, expected_versions={"a-1": -1})

    assert again == first == [0, 0, 1]
    assert any_store.stream_version("a-1") == 2


def test_a_wrong_version_of_any_stream_stops_all_of_it(any_store: Store) -> None:
    any_store.write_message("b-1", "Before")

    with pytest.raises(WrongExpectedVersion) as raised:
        any_store.write_many(numbered("a-1", "b-1", "b-1"), expected_versions={"a-1": -1, "b-1": 3})

    assert (raised.value.stream_name, raised.value.expected, raised.value.actual) == ("b-1", 3, 0)
    assert any_store.stream_version("a-1") is None


def test_the_right_versions_are_those_before_the_call(any_store: Store) -> None:
    any_store.write_message("b-1", "Before")

    versions = {"a-1": -1, "b-1": 0}

    assert any_store.write_many(
        numbered("a-1", "b-1", "a-1", "b-1"), expected_versions=versions
    ) == [0, 1, 1, 2]


@pytest.mark.parametrize("stream", ["a-1", "other-1"])
def test_a_batch_of_which_some_ids_exist_is_refused(any_store: Store, stream: str) -> None:
    messages = numbered("a-1", "b-1")
    any_store.write_message(stream, messages[0][1])

    with pytest.raises(DuplicateMessageId, match=str(messages[0][1].id)):
        any_store.write_many(messages)

    assert any_store.stream_version("b-1") is None


def test_an_id_in_another_stream_is_not_taken_for_a_retry(any_store: Store) -> None:
    first, second = Message("T"), Message("T")
    any_store.write_many([("a-1", first), ("a-2", second)])

    with pytest.raises(DuplicateMessageId):
        any_store.write_many([("a-2", first), ("a-1", second)])


def test_typed_messages_are_found_by_their_attributes(store: Store) -> None:
    store.write_many([("seat-1", SeatTaken(show="Hamlet")), ("seat-2", SeatTaken(show="Lear"))])

    found, _ = store.read(SeatTaken.to_conditions(show="Lear"))

    assert [one.stream_name for one in found] == ["seat-2"]


def test_a_failed_transaction_takes_it_back(store: Store) -> None:
    with store.transaction() as transaction:
        transaction.write_many(numbered("a-1", "b-1"))

        transaction.rollback()

    assert store.get_category_messages("$all") == []


def test_a_thousand_streams_lock_their_category_and_few_lock_themselves(
    store: Store, database_url: str
) -> None:
    def locks(count: int) -> list[tuple[Any, ...]]:
        with store.transaction() as transaction:
            transaction.write_many(numbered(*(f"a-{number}" for number in range(count))))
            with psycopg.connect(database_url) as connection:
                return connection.execute(
                    "select mode, count(*) from pg_locks where locktype = 'advisory'"
                    " and objsubid = 1 and database = (select oid from pg_database"
                    " where datname = current_database()) group by 1 order by 1"
                ).fetchall()

    assert locks(20) == [("ExclusiveLock", 20), ("ShareLock", 1)]
    assert locks(1000) == [("ExclusiveLock", 1)]


def test_many_streams_late_in_a_transaction_do_not_wait_for_who_writes_there(
    store: Store,
) -> None:
    with store.transaction() as other, store.transaction() as one:
        other.write_message("a-y", "T")
        one.write_message("a-x", "T")

        with pytest.raises(CategoryBusy):
            one.write_many(numbered(*(f"a-{number}" for number in range(1000))))
        one.rollback()


def test_two_that_write_the_same_streams_in_another_order_take_turns(
    store: Store, database_url: str
) -> None:
    streams = [f"a-{number}" for number in range(50)]
    with ThreadPoolExecutor() as threads:
        with store.transaction() as first:
            first.write_message("a-25", "T")
            waiting = [
                threads.submit(store.write_many, numbered(*order))
                for order in (streams, streams[::-1])
            ]
            wait_until_blocked(database_url, 2)
        written = sorted(sum(one.result()) for one in waiting)

    assert written == [1, 51]


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([], "at least one message"),
        ("a-1", "a list of pairs"),
        ({"a-1": Message("T")}, "a list of pairs"),
        ([Message("T")], "a list of pairs"),
        ([("a-1",)], "a list of pairs"),
        ([(Message("T"), "a-1")], "a list of pairs"),
        ([("a-1", "T")], "a Message or a TypedMessage"),
        ([("", Message("T"))], "a non-empty string"),
        ([("-1", Message("T"))], "a name with a category"),
        ([("$all", Message("T"))], "is the whole log"),
    ],
)
def test_what_is_no_list_of_streams_and_messages_is_refused(
    store: Store, messages: Any, expected: str
) -> None:
    with pytest.raises(ValidationError, match=expected):
        store.write_many(messages)


def test_an_id_twice_is_refused(store: Store) -> None:
    twice = Message("T", id=uuid4())

    with pytest.raises(ValidationError, match="different ids"):
        store.write_many([("a-1", twice), ("b-1", twice)])


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ({"c-1": 0}, "streams that messages are written to"),
        ({"a-1": -2}, "-1 .no stream. or more"),
        ({"a-1": None}, "-1 .no stream. or more"),
        ([("a-1", 0)], "a mapping of stream names to versions"),
    ],
)
def test_bad_versions_are_refused(store: Store, versions: Any, expected: str) -> None:
    with pytest.raises(ValidationError, match=expected):
        store.write_many(numbered("a-1"), expected_versions=versions)


def test_its_cost_does_not_grow_with_the_log_or_with_the_calls_before(
    new_database: Callable[[str], str],
) -> None:
    with penstock.connect(new_database("penstock"), pool_max_size=1) as store:
        few = pages_read(store)
        for _ in range(8):
            store.write_many(numbered(*(f"a-{number}" for number in range(1000))))
        many = pages_read(store)

    assert many < 3 * few


def pages_read(store: Store) -> int:
    """Return how many pages of the messages and their indexes a batch of ten looks at."""
    with store.transaction() as transaction:
        before = pages_so_far(transaction)
        transaction.write_many(numbered(*(f"a-{number}" for number in range(10))))
        return pages_so_far(transaction) - before


def pages_so_far(transaction: Transaction) -> int:
    row = transaction.connection.execute(
        "select sum(pg_stat_get_xact_blocks_fetched(c.oid))::bigint from pg_class c"
        " where c.oid = 'message_store.messages'::regclass or c.oid in (select indexrelid"
        " from pg_index where indrelid = 'message_store.messages'::regclass)"
    ).fetchone()
    assert row is not None
    return int(row[0])
