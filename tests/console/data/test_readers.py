"""Consumers, queues and groups: their state, and what moving one would do."""

from __future__ import annotations

import pytest

from penstock import AsyncStore
from penstock.console.data import consumers, groups, partitions, previews
from penstock.errors import GroupNotFound, PartitionNotFound, ReaderNotFound, ValidationError
from penstock.groups.claims import Claim
from penstock.message.typed import TypedMessage


class Seen(TypedMessage, type="console.seen"):
    course: str
    user: str


async def placed(store: AsyncStore, count: int = 3) -> None:
    for _ in range(count):
        await store.write_message("order-1", "Placed")


async def claimed(store: AsyncStore, group_id: str = "g") -> Claim:
    claim = await store.groups.claim_next(
        group_id, partition_by=["course", "user"], handled_types=[Seen], worker_id="w1"
    )
    assert claim is not None
    return claim


async def seen(store: AsyncStore, *pairs: tuple[str, str]) -> None:
    for course, user in pairs:
        await store.append([Seen(course=course, user=user)])


@pytest.mark.parametrize("kept_in", ["stream", "table"])
async def test_a_consumer_has_a_position_and_a_lag(async_store: AsyncStore, kept_in: str) -> None:
    await placed(async_store)
    await async_store.admin.seek("order", "mailer", 1, kept_in)

    [one] = (await consumers.consumers(async_store)).items

    assert (one.category, one.consumer_id, one.kept_in) == ("order", "mailer", kept_in)
    assert (one.position, one.behind.value, one.behind.at_least) == (1, 2, False)
    assert one.seconds_behind >= 0
    assert await consumers.consumer(async_store, "order", "mailer") is not None


async def test_consumers_come_in_pages(async_store: AsyncStore) -> None:
    await placed(async_store)
    for name, kept_in in (("c", "table"), ("a", "stream"), ("b", "table")):
        await async_store.admin.seek("order", name, 1, kept_in)

    first = await consumers.consumers(async_store, limit=2)
    second = await consumers.consumers(async_store, first.next, limit=2)

    assert [one.consumer_id for one in first.items] == ["a", "b"]
    assert [one.consumer_id for one in second.items] == ["c"]
    assert second.next is None


async def test_readers_that_are_none_are_named(async_store: AsyncStore) -> None:
    with pytest.raises(ReaderNotFound, match="'x' of order"):
        await consumers.consumer(async_store, "order", "x")
    with pytest.raises(ReaderNotFound, match="of the queue mail"):
        await consumers.queue_consumer(async_store, "mail", "x")
    with pytest.raises(GroupNotFound):
        await groups.group(async_store, "x")
    with pytest.raises(GroupNotFound):
        await partitions.partitions(async_store, "x")
    with pytest.raises(ValidationError):
        await consumers.consumer(async_store, "order-1", "x")


async def test_a_seek_is_previewed(async_store: AsyncStore) -> None:
    await placed(async_store)
    await async_store.admin.seek("order", "mailer", 2, "table")

    back = await previews.preview_seek(async_store, "order", "mailer", 0)
    forward = await previews.preview_seek(async_store, "order", "mailer", 3)
    beyond = await previews.preview_seek(async_store, "order", "mailer", 9)
    replay = await previews.preview_replay(async_store, "order", "mailer", 2)
    skipping = await previews.preview_replay(async_store, "order", "mailer", 4)

    assert back.summary == "mailer of order goes back from 2 to 0"
    assert back.details[0] == "2 messages are handled again"
    assert (back.expected, back.refused) == (2, None)
    assert forward.details[0] == "1 messages are not handled"
    assert beyond.refused == "position 9 is beyond 3, the end of the log"
    assert replay.details[0] == "1 messages are handled again"
    assert skipping.refused is not None


async def test_a_queues_consumer(async_store: AsyncStore) -> None:
    queue = async_store.queue("mail")
    await queue.create_consumer("sender")
    for _ in range(3):
        await queue.offer("hello")
    await async_store.admin.seek_session("mail", "sender", 1)

    [one] = (await consumers.queue_consumers(async_store)).items
    preview = await previews.preview_seek_queue(async_store, "mail", "sender", 3)

    assert (one.queue, one.consumer_id, one.next_offset, one.tail) == ("mail", "sender", 1, 3)
    assert one.behind.value == 2
    assert preview.details[0] == "2 records are not read"
    again = await consumers.queue_consumer(async_store, "mail", "sender")
    assert (again.next_offset, again.tail) == (1, 3)


async def test_a_group_and_its_partitions(async_store: AsyncStore) -> None:
    await async_store.groups.register("g")
    await seen(async_store, ("Algebra", "joe"), ("Logic: a|b", "ann\\"), ("Music", "joe"))
    first = await claimed(async_store)
    await async_store.groups.release(first, error="it broke", park=True)
    second = await claimed(async_store)

    own = await groups.group(async_store, "g")
    found = {
        state: [
            one.partition_key
            for one in (await partitions.partitions(async_store, "g", state)).items
        ]
        for state in (None, *partitions.STATES)
    }
    parked = await partitions.partition(async_store, "g", first.partition_key)
    held = await partitions.partition(async_store, "g", second.partition_key)

    assert [one.group_id for one in (await groups.groups(async_store)).items] == ["g"]
    assert [one.value for one in (own.partitions, own.pending, own.claimed, own.parked)] == [
        *(3, 2, 1, 1)
    ]
    assert len(found[None]) == 3
    assert found["parked"] == [first.partition_key]
    assert found["claimed"] == [second.partition_key]
    assert found["ready"] == ["course:Music|user:joe"]
    assert found["delayed"] == []
    assert (parked.state, parked.error) == ("parked", "it broke")
    assert (held.state, held.claimed_by) == ("claimed", "w1")
    assert second.partition_key == "course:Logic\\: a\\|b|user:ann\\\\"


async def test_partitions_come_in_pages(async_store: AsyncStore) -> None:
    await async_store.groups.register("g")
    await seen(async_store, *((f"c{number}", "u") for number in range(5)))
    await async_store.groups.release(await claimed(async_store))

    for state in (None, "ready", "pending"):
        found, after = [], None
        while True:
            page = await partitions.partitions(async_store, "g", state, after, limit=2)
            found += [one.partition_key for one in page.items]
            after = page.next
            if after is None:
                break
        assert sorted(found) == [f"course:c{number}|user:u" for number in range(5)]


async def test_a_partition_that_is_none_is_named(async_store: AsyncStore) -> None:
    await async_store.groups.register("g")
    await seen(async_store, ("Algebra", "joe"))
    await claimed(async_store)

    for key in ("course:Algebra", "course:Algebra|user:ann", "x", "|", ":"):
        with pytest.raises(PartitionNotFound):
            await partitions.partition(async_store, "g", key)
    with pytest.raises(ValidationError, match="one of pending"):
        await partitions.partitions(async_store, "g", "asleep")


async def test_a_reset_is_previewed(async_store: AsyncStore) -> None:
    await async_store.groups.register("g")
    await seen(async_store, ("Algebra", "joe"))
    await claimed(async_store)

    preview = await previews.preview_reset(async_store, "g")

    assert preview.summary == "g, which has read up to 1, handles all messages again"
    assert preview.details[1].startswith("1 claims become stale")
