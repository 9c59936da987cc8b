"""The log's screen: categories, streams, messages, a jump to a time, searches."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import msgspec
import pytest

from penstock import AsyncStore, Message
from penstock.console.data import categories, log, message_detail
from penstock.console.data.pages import LONGEST_TEXT, MOST_IN_ONE
from penstock.console.data.search import search
from penstock.errors import MessageNotFound, ValidationError
from penstock.message.typed import TypedMessage

NOWHERE = "018f6d1c-7a2b-7c3d-8e4f-5a6b7c8d9e0f"


async def test_categories_come_in_pages(async_store: AsyncStore) -> None:
    for name in ("beta-1", "alpha-1", "gamma-1", "alpha-2"):
        await async_store.write_message(name, "Written")

    first = await categories.categories(async_store, limit=2)
    second = await categories.categories(async_store, first.next, limit=2)

    assert [(one.category, one.head) for one in first.items] == [("alpha", 4), ("beta", 1)]
    assert [one.category for one in second.items] == ["gamma"]
    assert second.next is None


async def test_streams_of_a_category_come_in_pages_without_those_of_others(
    async_store: AsyncStore,
) -> None:
    for name in ("order-2", "order-1", "order-3", "orders-1", "order:position-x", "a-1", "zoo-1"):
        await async_store.write_message(name, "Written")

    first = await categories.streams(async_store, "order", limit=2)
    second = await categories.streams(async_store, "order", first.next, limit=2)

    assert [one.stream_name for one in first.items] == ["order-1", "order-2"]
    assert [one.stream_name for one in second.items] == ["order-3"]
    assert second.next is None


@pytest.mark.parametrize("target", ["order", "order-1", "$all"])
async def test_messages_come_newest_first(async_store: AsyncStore, target: str) -> None:
    for number in range(5):
        await async_store.write_message("order-1", "Placed", {"number": number})

    first = await log.messages(async_store, target, limit=3)
    second = await log.messages(async_store, target, after=first.next, limit=3)

    assert [one.data.value["number"] for one in first.items] == [4, 3, 2]
    assert [one.data.value["number"] for one in second.items] == [1, 0]
    assert second.next is None
    assert first.items[0].category == "order"


async def test_messages_of_one_type(async_store: AsyncStore) -> None:
    for number in range(6):
        await async_store.write_message("order-1", "Even" if number % 2 == 0 else "Odd")

    found = await log.messages(async_store, "order", type="Odd", limit=2)
    rest = await log.messages(async_store, "order", type="Odd", after=found.next, limit=2)

    assert [one.position for one in found.items] == [5, 3]
    assert [one.position for one in rest.items] == [1]


async def test_messages_from_a_position_come_oldest_first(async_store: AsyncStore) -> None:
    for _ in range(4):
        await async_store.write_message("order-1", "Placed")

    of_category = await log.messages_from(async_store, "order", 3)
    of_stream = await log.messages_from(async_store, "order-1", 3)

    assert [one.global_position for one in of_category] == [3, 4]
    assert [one.position for one in of_stream] == [3]


async def test_a_message_by_its_position_and_by_its_id(async_store: AsyncStore) -> None:
    sent = Message("Placed", {"a": 1}, {"correlation_id": "c", "causation_id": "d"})
    await async_store.write_message("order-1", "Before")
    await async_store.write_messages("order-1", [sent])

    by_position, by_id = (
        await message_detail.message(async_store, 2),
        await message_detail.message(async_store, sent.id),
    )

    assert by_position == by_id == await message_detail.message(async_store, "2")
    assert by_id.data.value == {"a": 1}
    assert (by_id.correlation_id, by_id.causation_id) == ("c", "d")
    assert (by_id.previous, by_id.next, by_id.complete, by_id.archived) == (1, None, True, False)


async def test_what_is_not_there_is_named(async_store: AsyncStore) -> None:
    await async_store.write_message("order-1", "Placed")

    with pytest.raises(MessageNotFound, match="'7': the log ends at 1"):
        await message_detail.message(async_store, "7")
    with pytest.raises(MessageNotFound, match="by their global position only"):
        await message_detail.message(async_store, NOWHERE)


@pytest.mark.parametrize("key", ["x", "-1", "1.5", "", "१", "9" * 30])
async def test_a_key_that_is_none_is_refused(async_store: AsyncStore, key: str) -> None:
    with pytest.raises(ValidationError):
        await message_detail.message(async_store, key)


@pytest.mark.parametrize("after", ["x", "", "é", "bm90IGpzb24", "W10", "WyJhIl0"])
async def test_a_cursor_that_is_none_is_refused(async_store: AsyncStore, after: str) -> None:
    with pytest.raises(ValidationError, match="`next` of a page"):
        await log.messages(async_store, after=after)


@pytest.mark.parametrize("limit", [0, 201, True, "5"])
async def test_a_page_has_up_to_200_items(async_store: AsyncStore, limit: int) -> None:
    with pytest.raises(ValidationError, match="from 1 to 200"):
        await log.messages(async_store, limit=limit)


async def test_a_large_message_is_cut_and_can_be_had_whole(async_store: AsyncStore) -> None:
    data = {"text": "x" * 5_000_000, "list": list(range(10_000)), "deep": _deep(100)}
    await async_store.write_message("order-1", "Large", data)

    [row] = (await log.messages(async_store, "order")).items
    detail = await message_detail.message(async_store, 1)
    whole = msgspec.json.decode(await message_detail.whole(async_store, 1))

    assert row.data.cut
    assert row.data.value is None
    assert detail.data.cut
    assert detail.data.size > 5_000_000
    assert len(detail.data.value["text"]) == LONGEST_TEXT + 1
    assert len(detail.data.value["list"]) == MOST_IN_ONE
    assert len(msgspec.json.encode(detail)) < 100_000
    assert whole["data"] == data


def _deep(levels: int) -> dict[str, object]:
    value: dict[str, object] = {}
    for _ in range(levels):
        value = {"in": value}
    return value


@pytest.mark.parametrize("category", ["order", "$all"])
async def test_the_position_at_a_time(async_store: AsyncStore, category: str) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    sql = """
        insert into message_store.messages (stream_name, type, position, time)
        select 'order-1', 'Placed', n, '2026-01-01'::timestamp + make_interval(mins => n)
        from generate_series(0, 99) n"""
    async with async_store.transaction() as transaction:
        await transaction.connection.execute(sql)

    found = [
        await log.position_at(async_store, start + timedelta(minutes=minutes), category)
        for minutes in (-5, 0, 0.5, 42, 98.5, 99, 1_000)
    ]

    assert [max(one, 1) for one in found] == [1, 1, 2, 43, 100, 100, 101]


async def test_the_position_at_a_time_without_a_zone_is_refused(async_store: AsyncStore) -> None:
    with pytest.raises(ValidationError, match="with a time zone"):
        await log.position_at(async_store, datetime(2026, 1, 1))  # noqa: DTZ001


class Joined(TypedMessage, type="console.joined"):
    course: str
    user: str


async def _join(store: AsyncStore, *joins: tuple[str, str]) -> None:
    for course, user in joins:
        await store.append([Joined(course=course, user=user)])


async def test_a_search_by_declared_attributes(async_store: AsyncStore) -> None:
    await _join(async_store, ("Algebra", "joe"), ("Logic", "joe"), ("Algebra", "ann"))

    by_one = await search(async_store, type="console.joined", attributes={"course": "Algebra"})
    by_both = await search(async_store, attributes={"user": "joe", "course": "Algebra"})
    by_type = await search(async_store, type="console.joined", limit=2)

    assert [one.global_position for one in by_one.items] == [3, 1]
    assert [one.global_position for one in by_both.items] == [1]
    assert [one.global_position for one in by_type.items] == [3, 2]
    assert by_one.complete
    rest = await search(async_store, type="console.joined", limit=2, after=by_type.next)
    assert [one.global_position for one in rest.items] == [1]


async def test_a_search_by_a_type_that_is_not_declared_says_what_it_looked_at(
    async_store: AsyncStore,
) -> None:
    await async_store.write_message("order-1", "Placed")
    await async_store.write_message("order-1", "Paid")

    found = await search(async_store, type="Paid")

    assert [one.global_position for one in found.items] == [2]
    assert found.looked_at == "the newest 2 messages: type Paid is not indexed"


async def test_a_search_by_correlation_begins_at_its_first_message(
    async_store: AsyncStore,
) -> None:
    await async_store.write_message("noise-1", "Noise")
    first = Message("Place", {})
    await async_store.write_messages("order:command-1", [first])
    await async_store.write_message("noise-1", "Noise")
    second = first.follow("Placed", {})
    await async_store.write_messages("order-1", [second])

    by_id = await search(async_store, correlation=str(first.id))
    unknown = await search(async_store, correlation="no such thing")

    assert [one.type for one in by_id.items] == ["Place", "Placed"]
    assert not by_id.complete
    assert unknown.items == ()


async def test_a_search_by_id(async_store: AsyncStore) -> None:
    sent = Message("Placed", {})
    await async_store.write_messages("order-1", [sent])

    found = await search(async_store, id=str(sent.id))
    nothing = await search(async_store, id=str(uuid4()))

    assert [one.id for one in found.items] == [sent.id]
    assert nothing.items == ()


@pytest.mark.parametrize(
    "terms",
    [
        {},
        {"id": "x"},
        {"type": "T", "correlation": "c"},
        {"type": "T\0"},
        {"type": "Undeclared", "attributes": {"a": "1"}},
        {"attributes": {"a": "1"}},
    ],
)
async def test_a_search_for_nothing_known_is_refused(
    async_store: AsyncStore, terms: dict[str, object]
) -> None:
    with pytest.raises(ValidationError):
        await search(async_store, **terms)  # type: ignore[arg-type]
