"""Dead letters of every kind: listed, looked at, retried, dropped, edited, in bulk."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from penstock import AsyncStore, Consumer, FailurePolicy, Message, RecordedMessage, Store
from penstock.console.data import dead_letter_actions, dead_letter_detail
from penstock.console.data import dead_letters as data
from penstock.errors import DeadLetterNotFound, PartitionNotFound, StateChanged, ValidationError
from tests.console.data.steps import begin_step, commit_step
from tests.console.data.test_outbox import failed
from tests.console.data.test_readers import claimed, seen
from tests.telemetry.busy import park_one

PARKED = "parked/order/mailer/1"


async def _errors(store: AsyncStore) -> str:
    """Let a step of a pipeline write a copy of a message to its errors queue."""
    written = await store.write_message("order-7", "Placed", {"a": 1}, returning="global_position")
    snapshot = await begin_step(store, "bill", {"order": (0, written)}, "d1")
    facts = {
        "error": "no price",
        "failed_stream_name": "order-7",
        "failed_global_position": written,
    }
    await commit_step(store, snapshot, ("shop.errors-1", "Placed", {"a": 1}, facts))
    return f"error/{written + 2}"


async def _all(store: Store, async_store: AsyncStore) -> None:
    store.write_message("order-1", "Placed", {"n": 1})
    park_one(store)
    await failed(async_store)
    await async_store.groups.register("g")
    await seen(async_store, ("Algebra", "joe"))
    await async_store.groups.release(await claimed(async_store), error="no", park=True)
    await _errors(async_store)


async def test_one_list_of_all_kinds(store: Store, async_store: AsyncStore) -> None:
    await _all(store, async_store)

    found: list[data.DeadLetter] = []
    after = None
    while True:
        page = await data.dead_letters(async_store, after=after)
        found += page.items
        after = page.next
        if after is None:
            break
    by_kind = {one.kind: (await data.dead_letters(async_store, one.kind)).items for one in found}

    assert [one.kind for one in found] == list(data.KINDS)
    assert {kind: len(items) for kind, items in by_kind.items()} == dict.fromkeys(data.KINDS, 1)
    assert {kind: count.value for kind, count in page.counts.items()} == {
        "outbox": 1,
        "parked": 1,
        "partition": 1,
    }
    assert page.errors_queues == ("shop.errors",)
    details = [await dead_letter_detail.dead_letter(async_store, one.key) for one in found]
    assert [one.letter.error for one in details] == [
        *("no such address", "RuntimeError: no such address", "no", "no price")
    ]
    assert details[1].data.value == {"n": 1}


async def test_an_outbox_message_is_retried_dropped_and_edited(async_store: AsyncStore) -> None:
    first, second, third = [await failed(async_store) for _ in range(3)]

    retried = await dead_letter_actions.retry(async_store, [f"outbox/{first}"])
    dropped = await dead_letter_actions.drop(async_store, [f"outbox/{second}", f"outbox/{uuid4()}"])
    edited = await dead_letter_actions.retry_edited(async_store, f"outbox/{third}", {"to": "joe"})

    assert [one.done for one in (*retried, *dropped, edited)] == [True, True, False, True]
    assert (await async_store.outbox.get(first)).state == "ready"
    ready = await async_store.outbox.list(state="ready")
    assert [one.payload for one in ready] == [{"to": "ann"}, {"to": "joe"}]
    assert await async_store.outbox.list(state="failed") == []
    with pytest.raises((StateChanged, DeadLetterNotFound)):
        await dead_letter_detail.dead_letter(async_store, f"outbox/{first}")


async def test_of_two_people_who_drop_a_parked_message_one_does(
    store: Store, async_store: AsyncStore
) -> None:
    store.write_message("order-1", "Placed")
    park_one(store)

    results = await asyncio.gather(
        *(dead_letter_actions.drop(async_store, [PARKED], "x") for _ in range(4))
    )

    assert sorted(one.done for [one] in results) == [False, False, False, True]
    assert await async_store.admin.parked("order", "mailer") == []
    assert await async_store.stream_version("order:parked-mailer") == 1
    with pytest.raises(DeadLetterNotFound):
        await dead_letter_detail.dead_letter(async_store, PARKED)


async def test_one_that_was_parked_before_a_thousand_others_is_found(
    store: Store, async_store: AsyncStore
) -> None:
    store.write_message("order-1", "Placed")
    park_one(store)
    others = [Message("Handled", {"global_position": 10_000 + n}) for n in range(1_200)]
    await async_store.write_messages("order:parked-mailer", others)

    found = (await data.dead_letters(async_store, "parked")).items
    [outcome] = await dead_letter_actions.retry(async_store, [PARKED])

    assert [one.key for one in found] == [PARKED]
    assert outcome.done


async def test_a_retry_of_a_parked_message_is_requested_once(
    store: Store, async_store: AsyncStore
) -> None:
    store.write_message("order-1", "Placed")
    park_one(store)

    [first] = await dead_letter_actions.retry(async_store, [PARKED])
    [second] = await dead_letter_actions.retry(async_store, [PARKED])

    assert (first.done, second.done) == (True, False)
    assert second.reason is not None
    assert "is about to be retried by now" in second.reason
    found = await dead_letter_detail.dead_letter(async_store, PARKED)
    assert found.letter.note == "retry requested"


async def test_a_consumer_handles_the_edited_copy(store: Store, async_store: AsyncStore) -> None:
    store.write_message("order-1", "Placed", {"to": "nobody"})
    park_one(store)

    await dead_letter_actions.retry_edited(async_store, PARKED, {"to": "ann"}, "joe")
    handled: list[RecordedMessage] = []

    def handle(message: RecordedMessage) -> None:
        handled.append(message)
        consumer.stop()

    parks = FailurePolicy.park(attempts=1)
    consumer = Consumer(store, "order", "mailer", handlers={"Placed": handle}, on_failure=parks)
    await asyncio.to_thread(consumer.run)

    assert [one.data for one in handled] == [{"to": "ann"}]
    assert await async_store.admin.parked("order", "mailer") == []
    assert (await async_store.get_stream_messages("order-1"))[0].data == {"to": "nobody"}


async def test_a_parked_partition_is_resumed_and_not_dropped(async_store: AsyncStore) -> None:
    await async_store.groups.register("g")
    await seen(async_store, ("Algebra", "joe"))
    await async_store.groups.release(await claimed(async_store), error="no", park=True)
    [letter] = (await data.dead_letters(async_store, "partition")).items

    [dropped] = await dead_letter_actions.drop(async_store, [letter.key])
    [retried] = await dead_letter_actions.retry(async_store, [letter.key])
    [again] = await dead_letter_actions.retry(async_store, [letter.key])

    assert (dropped.done, retried.done, again.done) == (False, True, False)
    assert (await async_store.groups.list())[0].parked == 0
    with pytest.raises((DeadLetterNotFound, PartitionNotFound)):
        await dead_letter_detail.dead_letter(async_store, letter.key)


async def test_a_message_of_an_errors_queue_is_retried_once(async_store: AsyncStore) -> None:
    key = await _errors(async_store)

    [first] = await dead_letter_actions.retry(async_store, [key], "ann")
    [second] = await dead_letter_actions.retry(async_store, [key], "joe")
    [third] = await dead_letter_actions.drop(async_store, [key], "joe")

    assert (first.done, second.done, third.done) == (True, False, False)
    original, copy = await async_store.get_stream_messages("order-7")
    assert copy.data == original.data == {"a": 1}
    assert copy.metadata is not None
    assert copy.metadata["retry_of_global_position"] == original.global_position
    assert "error" not in copy.metadata
    assert (await data.dead_letters(async_store, "error")).items == ()
    with pytest.raises(DeadLetterNotFound):
        await dead_letter_detail.dead_letter(async_store, key)


async def test_a_message_of_an_errors_queue_is_dropped_or_edited(async_store: AsyncStore) -> None:
    key = await _errors(async_store)

    with pytest.raises(ValidationError, match="a JSON object"):
        await dead_letter_actions.retry_edited(async_store, key, "text")
    await dead_letter_actions.retry_edited(async_store, key, {"a": 2}, "ann")

    assert [one.data for one in await async_store.get_stream_messages("order-7")] == [
        {"a": 1},
        {"a": 2},
    ]


@pytest.mark.parametrize(
    "key",
    ["", "x", "outbox", "outbox/", "outbox/a/b", "parked/order/mailer/x", "error/-1", "error/x"],
)
async def test_a_key_that_is_none_is_refused(async_store: AsyncStore, key: str) -> None:
    with pytest.raises(ValidationError):
        await dead_letter_detail.dead_letter(async_store, key)


async def test_what_is_no_dead_letter_is_named(async_store: AsyncStore) -> None:
    await async_store.write_message("order-1", "Placed")
    id = await async_store.outbox.enqueue("mail")

    for key in (f"outbox/{uuid4()}", f"outbox/{id}", PARKED, "partition/g/k", "error/1", "error/9"):
        with pytest.raises(DeadLetterNotFound):
            await dead_letter_detail.dead_letter(async_store, key)
    with pytest.raises(ValidationError, match="at most 1,000"):
        await dead_letter_actions.drop(async_store, [f"error/{number}" for number in range(1_001)])
    with pytest.raises(ValidationError):
        await dead_letter_actions.drop(async_store, [f"outbox/{id}", "x"])
    with pytest.raises(ValidationError, match="one of outbox"):
        await data.dead_letters(async_store, "lost")
