"""Members of a group share a category: each stream belongs to one, as in genuine Message DB."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import UUID, uuid4

import psycopg
import pytest

from penstock import Consumer, RecordedMessage, Store
from tests.consumers.consuming import fill, new_consumer

SIZE = 3


@pytest.fixture(scope="module")
def stream_names() -> list[str]:
    """A thousand streams: plain, UUID and compound ids, some that share a cardinal id."""
    return [
        *(f"order-{number}" for number in range(400)),
        *(f"order-{uuid4()}" for _ in range(300)),
        *(f"order-{UUID(int=number // 3)}+{number}" for number in range(300)),
    ]


@pytest.fixture
def written(store: Store, stream_names: list[str]) -> None:
    """Two messages in each stream."""
    with store.transaction() as transaction:
        transaction.lock_categories("order")
        for round_number in range(2):
            for name in stream_names:
                transaction.write_message(name, "Placed", {"round": round_number})


def member(store: Store, number: int, size: int = SIZE) -> tuple[Consumer, list[RecordedMessage]]:
    handled: list[RecordedMessage] = []
    consumer = new_consumer(
        store,
        "order",
        f"mailer-{number}",
        handlers={"Placed": handled.append},
        consumer_group_member=number,
        consumer_group_size=size,
    )
    return consumer, handled


def assigned_by_message_db(url: str, names: list[str]) -> Iterator[set[str]]:
    """The streams that a genuine Message DB assigns to each member."""
    with psycopg.connect(url) as connection:
        connection.execute("set search_path = message_store, public")
        connection.cursor().executemany(
            "insert into message_store.messages (stream_name, type, position) values (%s, 'P', 0)",
            [(name,) for name in names],
        )
        for number in range(SIZE):
            rows = connection.execute(
                "select stream_name from message_store.get_category_messages("
                "'order', 1, -1, null, %s, %s)",
                (number, SIZE),
            )
            yield {name for (name,) in rows}


@pytest.mark.usefixtures("written")
def test_each_message_goes_to_one_member_in_order_as_message_db_assigns_it(
    store: Store, stream_names: list[str], new_database: Callable[[str], str]
) -> None:
    members = [member(store, number) for number in range(SIZE)]

    busy = True
    while busy:  # in turns
        busy = sum(consumer.run_once() for consumer, _ in members) > 0

    expected = assigned_by_message_db(new_database("genuine"), stream_names)
    for (_, handled), streams in zip(members, expected, strict=True):
        assert {message.stream_name for message in handled} == streams
        places = [message.global_position for message in handled]
        assert places == sorted(set(places))
    assert sum(len(handled) for _, handled in members) == 2 * len(stream_names)


def test_a_member_with_nothing_to_do_is_not_behind(store: Store) -> None:
    *_, head = fill(store, "order", 5, streams=1)

    for number in range(SIZE):
        member(store, number)[0].run_once()

    assert [one.position for one in store.admin.consumers()] == [head] * SIZE
    assert [one.behind for one in store.admin.consumers()] == [0] * SIZE


def test_a_member_resumes_where_it_was(store: Store) -> None:
    fill(store, "order", 30, streams=10)
    first, before = member(store, 1)
    first.run_once()
    fill(store, "order", 30, streams=10)

    again, after = member(store, 1)
    again.run_once()

    assert [one.data for one in after] == [one.data for one in before]
    assert after[0].global_position > before[-1].global_position
