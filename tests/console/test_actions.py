"""Every action: what it would do is shown, then it is done, recorded, and its result shown."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import httpx2
import psycopg
import pytest

import penstock
from penstock import AsyncStore, Consumer, FailurePolicy, RecordedMessage, Store
from penstock.admin import Retained
from penstock.admin.processors import PROCESSOR, processors
from penstock.console.data.partitions import partition
from tests.console.conftest import act, asking, confirm, csrf
from tests.console.data.steps import begin_step
from tests.console.filled import Filled, fill

JOE, ADA = "course:Algebra|user:joe", "course:Algebra|user:ada"


@pytest.fixture
def mine(store: Store) -> Filled:
    """What was written to this test's own database."""
    return fill(store)


@pytest.fixture
async def client(async_store: AsyncStore, mine: Filled) -> AsyncIterator[httpx2.AsyncClient]:
    async with asking(async_store, actions=True, user=lambda request: "ada") as client:
        yield client


async def _recorded(store: AsyncStore) -> list[str]:
    messages = await store.get_category_messages("penstock:console")
    return [f"{one.data['who']}: {one.data['what']}" for one in messages]


async def test_what_it_would_do_is_shown_first_and_nothing_is_done(
    client: httpx2.AsyncClient, async_store: AsyncStore, mine: Filled
) -> None:
    shown = await client.get("/actions/retry-outbox", params={"id": str(mine.failed)})

    assert "Makes the message of email.send ready again" in shown.text
    assert "SMTP says no" in shown.text
    assert (await async_store.outbox.get(mine.failed)).state == "failed"
    assert await _recorded(async_store) == []


async def test_an_outbox_message_is_retried_once(
    client: httpx2.AsyncClient, async_store: AsyncStore, mine: Filled
) -> None:
    shown = await client.get("/actions/retry-outbox", params={"id": str(mine.failed)})
    first = await confirm(client, shown)
    second = await confirm(client, shown)

    assert first.status_code == 200
    assert "The message is ready again." in first.text
    assert second.status_code == 409
    assert "nothing was done" in second.text
    assert (await async_store.outbox.get(mine.failed)).state == "ready"
    assert await _recorded(async_store) == ["ada: Retry a message"]


async def test_an_outbox_message_is_cancelled(
    client: httpx2.AsyncClient, async_store: AsyncStore, mine: Filled
) -> None:
    await act(client, "cancel-outbox", id=str(mine.ready))

    assert (await async_store.outbox.get(mine.ready)).state == "failed"


async def test_failed_messages_that_match_are_retried(
    client: httpx2.AsyncClient, async_store: AsyncStore, mine: Filled
) -> None:
    none = await act(client, "retry-matching", topic="email.send", error_contains="other")
    some = await act(client, "retry-matching", topic="email.send", error_contains="SMTP")

    assert "0 messages are ready again" in none.text
    assert "1 messages are ready again" in some.text
    assert (await async_store.outbox.get(mine.failed)).state == "ready"


async def test_a_join_is_cancelled_once(
    client: httpx2.AsyncClient, async_store: AsyncStore, mine: Filled
) -> None:
    shown = await client.get("/actions/cancel-join", params={"id": str(mine.join)})
    first, second = await confirm(client, shown), await confirm(client, shown)

    assert (first.status_code, second.status_code) == (200, 409)
    assert (await async_store.joins.get(mine.join)).status == "cancelled"


async def test_a_consumer_seeks_and_replays(
    client: httpx2.AsyncClient, async_store: AsyncStore
) -> None:
    names = {"category": "account", "consumer_id": "billing"}
    await act(client, "replay-consumer", **names, position="11")
    [replayed] = await async_store.admin.consumers()
    await act(client, "seek-consumer", **names, position="20")
    [sought] = await async_store.admin.consumers()

    assert (replayed.position, sought.position) == (10, 20)


async def test_the_second_of_two_people_who_seek_is_refused(
    client: httpx2.AsyncClient, async_store: AsyncStore
) -> None:
    names = {"category": "account", "consumer_id": "billing"}
    one = await client.get("/actions/seek-consumer", params={**names, "position": "5"})
    other = await client.get("/actions/seek-consumer", params={**names, "position": "7"})
    first, second = await confirm(client, one), await confirm(client, other)

    assert (first.status_code, second.status_code) == (200, 409)
    [found] = await async_store.admin.consumers()
    assert found.position == 5


async def test_a_seek_beyond_the_end_is_refused_before_anything(
    client: httpx2.AsyncClient,
) -> None:
    names = {"category": "account", "consumer_id": "billing"}
    shown = await client.get("/actions/seek-consumer", params={**names, "position": "999999"})

    assert shown.status_code in (200, 400)
    assert 'name="confirmed"' not in shown.text


async def test_a_queue_s_consumer_seeks(
    client: httpx2.AsyncClient, async_store: AsyncStore
) -> None:
    await act(client, "seek-queue", queue="letters", consumer_id="postman", next_offset="0")

    [found] = await async_store.admin.sessions()
    assert found.next_offset == 0


async def test_a_group_is_stopped_started_and_reset(
    client: httpx2.AsyncClient, async_store: AsyncStore
) -> None:
    await act(client, "stop-group", group_id="seats")
    stopped = await async_store.groups.is_active("seats")
    again = await client.get("/actions/stop-group", params={"group_id": "seats"})
    await act(client, "start-group", group_id="seats")
    await act(client, "reset-group", group_id="seats")

    assert not stopped
    assert "already" in again.text
    assert 'name="confirmed"' not in again.text
    assert await async_store.groups.is_active("seats")
    assert await async_store.groups.parked("seats") == []


async def test_a_partition_is_resumed_and_another_released(
    client: httpx2.AsyncClient, async_store: AsyncStore
) -> None:
    await act(client, "resume-partition", group_id="seats", partition_key=JOE)
    released = await act(client, "release-partition", group_id="seats", partition_key=ADA)

    assert "taken from worker-1" in released.text
    assert (await partition(async_store, "seats", JOE)).state == "ready"
    assert (await partition(async_store, "seats", ADA)).state == "ready"


async def test_all_parked_messages_of_a_consumer_are_retried(
    client: httpx2.AsyncClient, async_store: AsyncStore, store: Store
) -> None:
    for number in range(3):
        store.write_message(f"parcel-{number}", "Placed")
    parks = FailurePolicy.park(attempts=1)

    def fail(message: RecordedMessage) -> None:
        raise RuntimeError(f"no van for {message.stream_name}")

    Consumer(store, "parcel", "driver", handlers={"Placed": fail}, on_failure=parks).run_once()
    shown = await client.get("/", follow_redirects=True)
    preview = await client.get("/actions/retry-parked?category=parcel&consumer_id=driver")

    first, second = await confirm(client, preview), await confirm(client, preview)

    assert "/actions/retry-parked?category=parcel&amp;consumer_id=driver" in shown.text
    assert "Retries the 3 parked messages of driver." in preview.text
    assert "no van for parcel-2" in preview.text
    assert "3 messages are retried as soon as driver is idle." in first.text
    assert "0 messages are retried" in second.text
    found = await async_store.admin.parked("parcel", "driver")
    assert [one.retry_requested for one in found] == [True] * 3
    assert await _recorded(async_store) == ["ada: Retry parked messages"] * 2


async def test_nothing_parked_is_not_retried(client: httpx2.AsyncClient) -> None:
    shown = await client.get("/actions/retry-parked?category=account&consumer_id=nobody")

    assert shown.status_code == 404


async def test_all_parked_partitions_are_resumed(
    client: httpx2.AsyncClient, async_store: AsyncStore
) -> None:
    done = await act(client, "resume-partitions", group_id="seats")

    assert "1 partitions were resumed" in done.text
    assert await async_store.groups.parked("seats") == []


async def test_an_open_writer_is_ended(client: httpx2.AsyncClient, database_url: str) -> None:
    with psycopg.connect(database_url) as writer:
        pid = writer.info.backend_pid
        writer.execute(
            "select message_store.write_message(gen_random_uuid()::text, 'a-1', 'A', '{}')"
        )
        overview = await client.get("/")
        done = await act(client, "end-writer", pid=str(pid))

        assert str(pid) in overview.text
        assert "was ended" in done.text
        with pytest.raises(psycopg.OperationalError):
            writer.execute("select 1")


async def _keys(client: httpx2.AsyncClient) -> dict[str, list[str]]:
    letters = (await client.get("/api/dead-letters")).json()["letters"]["items"]
    kinds = {one["kind"] for one in letters}
    return {kind: [one["key"] for one in letters if one["kind"] == kind] for kind in kinds}


async def test_dead_letters_are_retried_in_bulk(
    client: httpx2.AsyncClient, async_store: AsyncStore, mine: Filled
) -> None:
    keys = [key for keys in (await _keys(client)).values() for key in keys]
    secret = await csrf(client)
    shown = await client.post("/actions/retry-letters", data={"csrf": secret, "key": keys})
    done = await confirm(client, shown)

    assert "Retries 5 dead letters." in shown.text
    assert "5 retried." in done.text
    assert (await async_store.outbox.get(mine.failed)).state == "ready"
    assert await async_store.groups.parked("seats") == []


async def test_dead_letters_are_dropped_in_bulk_and_what_cannot_be_is_named(
    client: httpx2.AsyncClient,
) -> None:
    before = await _keys(client)
    secret = await csrf(client)
    shown = await client.post(
        "/actions/drop-letters",
        data={"csrf": secret, "key": [*before["parked"], *before["partition"]]},
    )
    done = await confirm(client, shown)
    after = await _keys(client)

    assert "3 dropped, 1 not." in done.text
    assert "parked" not in after
    assert after["partition"] == before["partition"]


async def test_an_edited_copy_is_retried(
    client: httpx2.AsyncClient, async_store: AsyncStore
) -> None:
    [key] = (await _keys(client))["outbox"]
    page = await client.get("/dead-letters/letter", params={"key": key})
    secret = await csrf(client)
    edited = {"csrf": secret, "key": key, "data": '{"number": "quince"}'}
    shown = await client.post("/actions/edit-letter", data=edited)
    done = await confirm(client, shown)

    assert re.search(r"<textarea[^>]*>\{", page.text)
    assert "1 retried as an edited copy." in done.text
    ready = await async_store.outbox.list(topic="email.send", state="ready")
    assert [one.payload for one in ready] == [{"number": "quince"}]
    assert "quince" not in str(
        (await async_store.get_category_messages("penstock:console"))[-1].data
    )


@pytest.mark.parametrize("data", ["", "{", "nan", "[" * 5000])
async def test_an_edited_copy_that_is_not_json_is_refused(
    client: httpx2.AsyncClient, data: str
) -> None:
    [key] = (await _keys(client))["outbox"]
    fields = {"csrf": await csrf(client), "key": key, "data": data, "confirmed": "yes"}

    answer = await client.post("/actions/edit-letter", data=fields)

    assert answer.status_code == 400


async def test_a_processor_is_retired_once_and_retention_waits_for_it_no_longer(
    client: httpx2.AsyncClient, async_store: AsyncStore
) -> None:
    for _ in range(3):
        await async_store.write_message("order-1", "Placed")
    await async_store.groups.clear()  # it would hold retention back, too
    await begin_step(async_store, "bill", {"order": (0, 0)}, "d1")
    kept = await async_store.admin.retain("order", keep_count=1)

    names = {"pipeline": "shop", "processor": "bill"}
    shown = await client.get("/actions/retire-processor", params=names)
    first, second = await confirm(client, shown), await confirm(client, shown)

    assert "Retires bill of shop" in shown.text
    assert (first.status_code, second.status_code) == (200, 409)
    assert kept.held_back_by is not None
    assert (kept.removed, kept.held_back_by.name) == (0, "shop.bill")
    [retired] = await async_store.run(processors("shop"))
    assert retired.retired_at is not None
    assert await async_store.admin.retain("order", keep_count=1) == Retained(2, None)
    assert await _recorded(async_store) == ["ada: Retire a processor"]


async def test_a_processor_that_runs_is_not_retired(
    client: httpx2.AsyncClient, async_store: AsyncStore, database_url: str
) -> None:
    await begin_step(async_store, "bill", {}, "d1")
    names = {"pipeline": "shop", "processor": "bill"}
    confirmable = await client.get("/actions/retire-processor", params=names)
    with psycopg.connect(database_url, application_name="the runner") as runner:
        runner.execute("select pg_advisory_lock(%s, hashtext('shop.bill'))", (PROCESSOR,))

        shown = await client.get("/actions/retire-processor", params=names)
        refused = await confirm(client, confirmable)

    assert "It is running (the runner" in shown.text
    assert 'name="confirmed"' not in shown.text
    assert refused.status_code == 409
    [running] = await async_store.run(processors("shop"))
    assert running.retired_at is None


async def test_what_was_done_is_listed(client: httpx2.AsyncClient, mine: Filled) -> None:
    await act(client, "stop-group", group_id="seats")

    page = await client.get("/activity")

    assert "Stop a group" in page.text
    assert "seats gives out no more claims" in page.text


async def test_a_role_that_may_only_read_gets_a_clear_answer(
    store: Store, database_url: str, mine: Filled
) -> None:
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute("drop role if exists console_reader")
        owner.execute("create role console_reader login in role penstock_reader")
        try:
            async with (
                await penstock.connect_async(database_url, user="console_reader") as reader,
                asking(reader, actions=True) as client,
            ):
                page = await client.get("/groups")
                refused = await act(client, "stop-group", group_id="seats")
        finally:
            owner.execute("drop role console_reader")

    assert page.status_code == 200
    assert refused.status_code == 403
    assert "permission denied" in refused.text
