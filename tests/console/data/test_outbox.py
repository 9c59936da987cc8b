"""The outbox's screen: topics, messages by state, timelines, joins."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from penstock import AsyncStore
from penstock.console.data import joins, outbox
from penstock.console.data.outbox_rows import OutboxRow
from penstock.console.data.topics import topics
from penstock.errors import JoinNotFound, OutboxMessageNotFound, ValidationError

LATER = datetime.now(UTC) + timedelta(days=1)


async def failed(store: AsyncStore, topic: str = "mail", error: str = "no such address") -> str:
    id = await store.outbox.enqueue(topic, {"to": "ann"})
    [claimed] = await store.outbox.claim("worker", topics=[topic])
    await store.outbox.fail(claimed, error)
    return str(id)


async def test_topics_have_counts_by_state(async_store: AsyncStore) -> None:
    await failed(async_store)
    await async_store.outbox.enqueue("mail")
    await async_store.outbox.enqueue("bill", due=LATER)
    [done] = await async_store.outbox.claim("worker", topics=["mail"])
    await async_store.outbox.ack(done)
    await async_store.outbox.enqueue("sms")
    await async_store.outbox.claim("worker", topics=["sms"])

    found = await topics(async_store)

    by_topic = {
        one.topic: tuple(c.value for c in (one.ready, one.in_progress, one.failed, one.done))
        for one in found.items
    }
    assert by_topic == {"bill": (1, 0, 0, 0), "mail": (0, 0, 1, 1), "sms": (0, 1, 0, 0)}
    assert (found.failed.value, found.done.value) == (1, 1)
    assert {one.topic: bool(one.last_failure) for one in found.items} == {
        "bill": False,
        "mail": True,
        "sms": False,
    }


@pytest.mark.parametrize("topic", [None, "mail"])
@pytest.mark.parametrize("state", [None, *outbox.STATES])
async def test_messages_in_a_state_come_in_pages(
    async_store: AsyncStore, topic: str | None, state: str | None
) -> None:
    sql = """
        insert into penstock.outbox
          (id, topic, payload, encoding, state, due, lease_until, finished_at)
        select gen_random_uuid(), t.topic, '{}', 'json', s.state,
          case when s.sleeps then null else now() + make_interval(secs => n / 2) end,
          case when s.state = 'in_progress' then now() + make_interval(secs => n / 2) end,
          case when s.state in ('done', 'failed') then now() - make_interval(secs => n / 2) end
        from generate_series(1, 5) n
        cross join (values ('mail'), ('sms')) t(topic)
        cross join (values ('ready', false), ('ready', true), ('in_progress', false),
          ('done', false), ('failed', false)) s(state, sleeps)"""
    async with async_store.transaction() as transaction:
        await transaction.connection.execute(sql)

    found: list[OutboxRow] = []
    after = None
    while True:
        page = await outbox.outbox_messages(async_store, topic, state, after, limit=3)
        assert len(page.items) <= 3
        found += page.items
        after = page.next
        if after is None:
            break

    expected = (5 if topic else 10) * (1 if state else 5)
    assert len({one.id for one in found}) == len(found) == expected
    assert {one.state for one in found} == ({state} if state else set(outbox.STATES))
    assert topic is None or {one.topic for one in found} == {topic}


async def test_a_message_has_a_timeline(async_store: AsyncStore) -> None:
    found = await outbox.outbox_message(async_store, await failed(async_store))
    waiting = await outbox.outbox_message(
        async_store, await async_store.outbox.enqueue("mail", "text", due=LATER)
    )

    assert [one.what for one in found.timeline] == ["enqueued", "claimed", "failed"]
    assert found.timeline[-1].detail == "no such address"
    assert found.payload.value == {"to": "ann"}
    assert [(one.what, one.future) for one in waiting.timeline] == [
        ("enqueued", False),
        ("due", True),
    ]


async def test_a_large_payload_is_cut_and_can_be_had_whole(async_store: AsyncStore) -> None:
    id = await async_store.outbox.enqueue("mail", "x" * 1_000_000)

    found = await outbox.outbox_message(async_store, id)

    assert found.payload.cut
    assert found.payload.size == 1_000_000
    assert await outbox.whole_payload(async_store, id) == b"x" * 1_000_000


async def test_what_is_none_is_named(async_store: AsyncStore) -> None:
    with pytest.raises(OutboxMessageNotFound):
        await outbox.outbox_message(async_store, uuid4())
    with pytest.raises(OutboxMessageNotFound):
        await outbox.whole_payload(async_store, uuid4())
    with pytest.raises(JoinNotFound):
        await joins.join(async_store, uuid4())
    for call in (
        outbox.outbox_message(async_store, "x"),
        outbox.outbox_messages(async_store, state="lost"),
        outbox.outbox_messages(async_store, "mail", "ready", after="WyJhIl0"),
        joins.join(async_store, "x"),
        joins.joins(async_store, "lost"),
    ):
        with pytest.raises(ValidationError):
            await call


async def test_a_join_says_what_it_waits_for(async_store: AsyncStore) -> None:
    join_id = await async_store.joins.start("order-1", 3)
    first = await async_store.outbox.enqueue("mail", joins=[join_id])
    await async_store.outbox.enqueue("sms", joins=[join_id])
    [claimed] = await async_store.outbox.claim("worker", topics=["mail"])
    await async_store.outbox.ack(claimed)
    await async_store.joins.enqueue_wait(join_id, on_complete_topic="ship")

    found = await joins.join(async_store, join_id)
    of_done = await joins.joins_of(async_store, first)
    assert found.row.wait_id is not None
    of_wait = await joins.joins_of(async_store, found.row.wait_id)

    assert found.waits_for == ("1 step is not finished", "1 step is not attached yet")
    assert {one.topic: one.status for one in found.steps} == {"mail": "completed", "sms": "pending"}
    assert found.wait is not None
    assert found.wait.state == "asleep"
    assert [one.join_id for one in of_done] == [one.join_id for one in of_wait] == [join_id]


async def test_joins_come_newest_first_in_pages(async_store: AsyncStore) -> None:
    started = [await async_store.joins.start(f"key {number}", 1) for number in range(5)]
    await async_store.joins.cancel(started[2])

    found, after = [], None
    while True:
        page = await joins.joins(async_store, None, after, limit=2)
        found += [one.join_id for one in page.items]
        after = page.next
        if after is None:
            break
    cancelled = await joins.joins(async_store, "cancelled")

    assert found == started[::-1]
    assert [one.join_id for one in cancelled.items] == [started[2]]


async def test_joins_of_a_grouping_key_come_in_pages(async_store: AsyncStore) -> None:
    first, _, second = [await async_store.joins.start(key, 1) for key in ("a", "b", "a")]
    await async_store.joins.cancel(first)

    newest = await joins.joins(async_store, limit=1, grouping_key="a")
    older = await joins.joins(async_store, None, newest.next, 1, grouping_key="a")
    pending = await joins.joins(async_store, "pending", grouping_key="a")

    assert [one.join_id for one in (*newest.items, *older.items)] == [second, first]
    assert older.next is None
    assert [one.join_id for one in pending.items] == [second]
