"""The actions: what they change, and what the second of two people gets."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import psycopg
import pytest

from penstock import AsyncStore
from penstock.console.data import (
    audit,
    consumers,
    groups,
    outbox_actions,
    overview,
    partitions,
    pipeline_actions,
    pipelines,
    previews,
    reader_actions,
)
from penstock.errors import (
    GroupNotFound,
    JoinFinished,
    OutboxMessageNotFound,
    PartitionNotFound,
    ProcessorNotFound,
    ReaderNotFound,
    StaleClaim,
    StateChanged,
    ValidationError,
    WriterNotFound,
)
from tests.console.data.test_outbox import LATER, failed
from tests.console.data.test_readers import claimed, placed, seen


async def test_an_action_is_recorded(async_store: AsyncStore) -> None:
    position = await audit.record_action(async_store, "ann", "seek", {"position": 3})

    [found] = await audit.recorded_actions(async_store)

    assert (found.global_position, found.category) == (position, "penstock:console")
    assert found.data.value == {"who": "ann", "what": "seek", "facts": {"position": 3}}


async def test_a_writer_is_ended_once(async_store: AsyncStore, database_url: str) -> None:
    with psycopg.connect(database_url) as writer:
        writer.execute(
            "select message_store.write_message(gen_random_uuid()::text, 'a-1', 'T', '{}')"
        )
        pid = writer.info.backend_pid
        [held] = (await overview.overview(async_store)).held_back_by

        with pytest.raises(StateChanged, match="a later one"):
            await reader_actions.end_writer(async_store, pid, held.bound - 1)
        ended = await reader_actions.end_writer(async_store, pid, held.bound)
        with pytest.raises(WriterNotFound):
            await reader_actions.end_writer(async_store, pid, held.bound)

        assert ended.pid == held.pid == pid
        assert held.statement is not None
        assert "write_message" in held.statement
        with pytest.raises(psycopg.OperationalError):
            writer.execute("select 1")
    assert await async_store.stream_version("a-1") is None


@pytest.mark.parametrize("kept_in", ["stream", "table"])
async def test_a_consumer_is_moved_from_where_it_was_seen(
    async_store: AsyncStore, kept_in: str
) -> None:
    await placed(async_store)
    await async_store.admin.seek("order", "mailer", 2, kept_in)

    await reader_actions.seek(async_store, "order", "mailer", 1, expected=2)
    with pytest.raises(StateChanged, match="is at 1 by now, not at 2: nothing was done"):
        await reader_actions.seek(async_store, "order", "mailer", 3, expected=2)
    with pytest.raises(ValidationError, match="the end of the log"):
        await reader_actions.seek(async_store, "order", "mailer", 99, expected=1)
    resumes = await reader_actions.replay(async_store, "order", "mailer", 1, expected=1)

    assert resumes == 0
    assert (await consumers.consumer(async_store, "order", "mailer")).position == 0
    with pytest.raises(ValidationError, match="to skip none"):
        await reader_actions.replay(async_store, "order", "mailer", 3, expected=0)
    with pytest.raises(ReaderNotFound):
        await reader_actions.seek(async_store, "order", "nobody", 1, expected=None)


async def test_a_queues_consumer_is_moved_from_where_it_was_seen(async_store: AsyncStore) -> None:
    queue = async_store.queue("mail")
    await queue.create_consumer("sender")
    for _ in range(3):
        await queue.offer("hello")

    before = await reader_actions.seek_queue(async_store, "mail", "sender", 2, expected=0)

    assert before == 0
    assert (await consumers.queue_consumer(async_store, "mail", "sender")).next_offset == 2
    with pytest.raises(StateChanged):
        await reader_actions.seek_queue(async_store, "mail", "sender", 1, expected=0)


async def test_of_two_people_who_reset_a_group_one_does(async_store: AsyncStore) -> None:
    await async_store.groups.register("g")
    await seen(async_store, ("Algebra", "joe"))
    claim = await claimed(async_store)
    preview = await previews.preview_reset(async_store, "g")
    assert isinstance(preview.expected, int)

    results = await asyncio.gather(
        *(reader_actions.reset_group(async_store, "g", preview.expected) for _ in range(2)),
        return_exceptions=True,
    )

    assert sorted(type(one).__name__ for one in results) == ["NoneType", "StateChanged"]
    assert (await groups.group(async_store, "g")).partitions.value == 0
    with pytest.raises(StaleClaim):
        await async_store.groups.ack(claim)
    with pytest.raises(GroupNotFound):
        await reader_actions.reset_group(async_store, "x", 0)


async def test_a_group_is_stopped_and_started(async_store: AsyncStore) -> None:
    await async_store.groups.register("g")

    await reader_actions.stop_group(async_store, "g")
    stopped = (await groups.group(async_store, "g")).status
    await reader_actions.start_group(async_store, "g")

    assert (stopped, (await groups.group(async_store, "g")).status) == ("stopped", "active")


async def test_a_parked_partition_is_resumed_once(async_store: AsyncStore) -> None:
    await async_store.groups.register("g")
    await seen(async_store, ("Algebra", "joe"))
    claim = await claimed(async_store)
    await async_store.groups.release(claim, error="no", park=True)

    await reader_actions.resume_partition(async_store, "g", claim.partition_key)

    assert (await partitions.partition(async_store, "g", claim.partition_key)).state == "ready"
    with pytest.raises(StateChanged, match="not parked"):
        await reader_actions.resume_partition(async_store, "g", claim.partition_key)
    with pytest.raises(PartitionNotFound):
        await reader_actions.resume_partition(async_store, "g", "course:x|user:y")
    assert await reader_actions.resume_partitions(async_store, "g") == 0


async def test_a_claimed_partition_is_taken_from_its_worker(async_store: AsyncStore) -> None:
    await async_store.groups.register("g")
    await seen(async_store, ("Algebra", "joe"))
    claim = await claimed(async_store)
    held = await partitions.partition(async_store, "g", claim.partition_key)
    assert held.claimed_at is not None

    with pytest.raises(StateChanged, match="claimed again"):
        await reader_actions.release_partition(
            async_store, "g", claim.partition_key, held.claimed_at - timedelta(seconds=1)
        )
    worker = await reader_actions.release_partition(
        async_store, "g", claim.partition_key, held.claimed_at
    )

    assert worker == "w1"
    assert (await partitions.partition(async_store, "g", claim.partition_key)).state == "ready"
    with pytest.raises(StaleClaim):
        await async_store.groups.ack(claim)
    with pytest.raises(StateChanged, match="not claimed"):
        await reader_actions.release_partition(async_store, "g", claim.partition_key)


async def test_a_failed_message_is_retried_once(async_store: AsyncStore) -> None:
    id = await failed(async_store)

    await outbox_actions.retry_outbox(async_store, id)

    assert (await async_store.outbox.get(id)).state == "ready"
    with pytest.raises(StateChanged, match="is ready by now, not failed"):
        await outbox_actions.retry_outbox(async_store, id)
    with pytest.raises(OutboxMessageNotFound):
        await outbox_actions.retry_outbox(async_store, uuid4())


async def test_a_cancelled_message_fails_and_its_join_counts_it(async_store: AsyncStore) -> None:
    join_id = await async_store.joins.start(None, 1)
    id = await async_store.outbox.enqueue("mail", due=LATER, joins=[join_id])

    await outbox_actions.cancel_outbox(async_store, id, "ann")

    found = await async_store.outbox.get(id)
    assert (found.state, found.last_error) == ("failed", "cancelled by ann")
    assert (await async_store.joins.get(join_id)).failed_steps == 1
    assert await async_store.outbox.claim("worker") == []
    with pytest.raises(StateChanged, match="is failed by now, not ready"):
        await outbox_actions.cancel_outbox(async_store, id, "ann")


async def test_a_message_in_progress_is_not_cancelled(async_store: AsyncStore) -> None:
    id = await async_store.outbox.enqueue("mail")
    [claim] = await async_store.outbox.claim("worker")

    with pytest.raises(StateChanged, match="is in_progress by now"):
        await outbox_actions.cancel_outbox(async_store, id, "ann")

    await async_store.outbox.ack(claim)


async def test_what_matches_a_filter_is_retried(async_store: AsyncStore) -> None:
    wanted = await failed(async_store, "mail", "timeout of the server")
    others = [
        await failed(async_store, "mail", "no such address"),
        await failed(async_store, "sms", "timeout of the server"),
    ]

    none = await outbox_actions.retry_matching(
        async_store, "mail", "timeout", datetime.now(UTC) + timedelta(hours=1)
    )
    some = await outbox_actions.retry_matching(async_store, "mail", "timeout")

    assert (none.count, some.count, some.more) == (0, 1, False)
    assert (await async_store.outbox.get(wanted)).state == "ready"
    assert {(await async_store.outbox.get(one)).state for one in others} == {"failed"}
    assert (await outbox_actions.retry_matching(async_store)).count == 2


async def test_a_join_is_cancelled_once(async_store: AsyncStore) -> None:
    join_id = await async_store.joins.start(None, 1)

    await outbox_actions.cancel_join(async_store, join_id)

    assert (await async_store.joins.get(join_id)).status == "cancelled"
    with pytest.raises((StateChanged, JoinFinished)):
        await outbox_actions.cancel_join(async_store, join_id)


async def test_a_processor_is_retired_unless_it_runs(
    async_store: AsyncStore, database_url: str
) -> None:
    async with async_store.transaction() as transaction:
        await transaction.connection.execute(
            "select penstock.open_processor('shop', 'sums', 'sink')"
        )
    with psycopg.connect(database_url, application_name="the runner") as runner:
        runner.execute("select pg_advisory_lock(1885693288, hashtext('shop.sums'))")
        [running] = await pipelines.processors(async_store, "shop")
        with pytest.raises(StateChanged, match="running"):
            await pipeline_actions.retire_processor(async_store, "shop", "sums")
        runner.execute("select pg_advisory_unlock_all()")  # a session ends some time after this

    assert running.running is not None
    assert running.running.startswith("the runner, server process")
    await pipeline_actions.retire_processor(async_store, "shop", "sums")
    [retired] = await pipelines.processors(async_store, "shop")
    assert retired.retired_at is not None
    with pytest.raises(ProcessorNotFound):
        await pipeline_actions.retire_processor(async_store, "shop", "other")
