"""Consumers, workers and dispatchers with hostile names, and with errors that cannot be held."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from hypothesis import given

from penstock import Consumer, Dispatcher, FailurePolicy, Store, Worker
from tests.fuzz.arguments import Sent
from tests.fuzz.hostile import few, holdable, surely, texts

ONCE = FailurePolicy.park(attempts=1, delay=0)


@few
@given(text=holdable)
def test_a_consumer_keeps_its_position_under_any_id(store: Store, text: str) -> None:
    for positions in ("stream", "table", "hybrid"):
        category = f"fuzz{uuid4().hex}"
        store.write_message(f"{category}-1", text)
        seen: list[str] = []

        for _ in range(2):
            consumer = Consumer(store, category, text, positions=positions)
            consumer.handler(text)(lambda message, seen=seen: seen.append(message.type))
            consumer.run_once()

        assert seen == [text]
        assert [one.consumer_id for one in store.admin.consumers() if one.category == category] == [
            text
        ]


@few
@given(text=texts)
@surely
def test_a_consumer_parks_a_message_whatever_its_error_says(store: Store, text: str) -> None:
    category = f"fuzz{uuid4().hex}"
    store.write_message(f"{category}-1", "Opened")
    consumer = Consumer(store, category, "reader", on_failure=ONCE)

    @consumer.handler("Opened")
    def fail(_: Any) -> None:
        raise ValueError(text)

    consumer.run_once()

    (parked,) = store.admin.parked(category, "reader")
    assert parked.error.startswith("ValueError: ")


@few
@given(text=texts)
@surely
def test_a_worker_parks_a_partition_whatever_its_error_says(store: Store, text: str) -> None:
    group_id = str(uuid4())
    store.append(Sent(device=group_id))

    def fail(claim: Any) -> None:
        if claim.partition_value == {"device": group_id}:
            raise ValueError(text)

    worker = Worker(
        store, group_id, fail, partition_by="device", handled_types=[Sent], on_failure=ONCE
    )
    while worker.run_once():
        pass

    (parked,) = store.groups.parked(group_id)
    assert (parked.error or "").startswith("ValueError: ")


@few
@given(text=texts)
@surely
def test_a_dispatcher_fails_a_message_whatever_its_error_says(store: Store, text: str) -> None:
    topic = str(uuid4())
    id = store.outbox.enqueue(topic)
    dispatcher = Dispatcher(store, concurrency=1, on_failure=FailurePolicy.retry(attempts=1))

    @dispatcher.handler(topic)
    def fail(_: Any) -> None:
        raise ValueError(text)

    dispatcher.run_until_idle()

    assert store.outbox.get(id).state == "failed"
