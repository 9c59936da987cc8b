"""What PostgreSQL can hold comes back as it went in, whatever it looks like."""

from __future__ import annotations

from uuid import uuid4

import pytest
from hypothesis import assume, given

from penstock import CommitMode, ConcurrentAppendError, Record, Store
from tests.fuzz.arguments import Moved, Sent
from tests.fuzz.hostile import few, holdable, many


@many
@given(text=holdable)
def test_a_message_and_its_stream(store: Store, text: str) -> None:
    stream_name, data = f"fuzz-{uuid4()}{text}", {text: [text, {text: text}]}
    store.write_message(stream_name, text, data, {text: text})

    (read,) = store.get_stream_messages(stream_name)

    assert (read.stream_name, read.type) == (stream_name, text)
    assert (read.data, read.metadata) == (data, {text: text})
    assert store.get_last_stream_message(stream_name, text) == read
    assert store.get_last_stream_message(stream_name, f"{text}'") is None


@many
@given(text=holdable)
def test_a_category(store: Store, text: str) -> None:
    category = f"fuzz{uuid4().hex}{text.replace('-', '')}"
    store.write_message(f"{category}-1", "Opened")
    store.write_message(f"{category}x-1", "Opened")

    (read,) = store.get_category_messages(category)

    assert read.category == category
    assert store.category_head(category) == read.global_position
    assert [one.stream_name for one in store.streams(category)] == [read.stream_name]


@many
@given(text=holdable)
def test_a_correlation(store: Store, text: str) -> None:
    category = f"fuzz{uuid4().hex}"
    asker = f"fuzz{uuid4().hex}{text.replace('-', '')}"
    store.write_message(f"{category}-1", "Asked", {}, {"correlationStreamName": f"{asker}-1"})
    store.write_message(f"{category}-1", "Asked", {}, {"correlationStreamName": f"{asker}x-1"})

    (read,) = store.get_category_messages(category, correlation=asker)

    assert read.position == 0


@many
@given(text=holdable)
def test_an_attribute_and_the_guard_on_it(store: Store, text: str) -> None:
    device = f"{uuid4()}{text}"
    mine, others = Moved.to_conditions(device=device), Moved.to_conditions(device=f"{device}'")
    _, guard = store.read(mine)
    appended = store.append(Moved(device=device), guard)

    (read,), _ = store.read(mine)

    assert (read.global_position, read.data) == (appended.position, {"device": device})
    assert store.read(others)[0] == []
    with pytest.raises(ConcurrentAppendError):
        store.append(Moved(device=device), guard)


@few
@given(text=holdable)
def test_a_group_its_partition_and_the_error_of_a_parked_one(store: Store, text: str) -> None:
    group_id, device = f"{uuid4()}{text}", f"{uuid4()}{text}"
    store.groups.register(group_id)
    appended = store.append(Sent(device=device))
    claim = None
    while claim is None or claim.messages[0].global_position != appended.position:
        claim = store.groups.claim_next(
            group_id, partition_by="device", handled_types=[Sent], worker_id=text
        )
        assert claim is not None
        if claim.messages[0].global_position != appended.position:
            store.groups.ack(claim)

    store.groups.release(claim, error=text, park=True)
    (parked,) = store.groups.parked(group_id)

    assert claim.partition_value == {"device": device}
    assert (parked.partition_key, parked.error) == (claim.partition_key, text)
    assert store.groups.resume(group_id, f"{claim.partition_key}'") == 0
    assert store.groups.resume(group_id, claim.partition_key) == 1


@many
@given(text=holdable)
def test_a_queue_its_records_and_its_consumers(store: Store, text: str) -> None:
    queue = store.queue(f"{uuid4()}{text}")
    queue.offer_many([Record({text: text}, text, {text: text}), Record(text)])

    with queue.create_consumer(text, CommitMode.MANUAL_COMMIT) as session:
        first = session.poll()
        session.commit()
        second = session.poll()
    with queue.create_consumer(f"{text}'") as other:
        assert other.committed_offset() == 0

    assert first is not None
    assert second is not None
    assert (first.value, first.headers) == ({text: text}, {text: text})
    assert first.key == text
    assert second.value == text
    with queue.create_consumer(text) as session:
        assert session.committed_offset() == 1


@many
@given(text=holdable)
def test_an_outbox_message_and_its_error(store: Store, text: str) -> None:
    topic = f"{uuid4()}{text}"
    id = store.outbox.enqueue(topic, {text: text}, correlation_id=text, dedupe_key=text)
    again = store.outbox.enqueue(topic, dedupe_key=text)
    claimed = [one for one in store.outbox.claim(text, limit=1000) if one.id == id]

    store.outbox.fail(claimed, text)
    (failed,) = store.outbox.list(topic=topic)

    assert again == id
    assert (failed.topic, failed.payload, failed.correlation_id) == (topic, {text: text}, text)
    assert (failed.last_error, failed.state) == (text, "failed")
    assert store.outbox.retry_failed(topic=f"{topic}'") == 0
    assert store.outbox.retry_failed(topic=topic) == 1


@many
@given(text=holdable)
def test_a_join(store: Store, text: str) -> None:
    key = f"{uuid4()}{text}"
    join_id = store.joins.start(key, 1, text)

    (found,) = store.joins.list(grouping_key=key)

    assert (found.join_id, found.grouping_key, found.metadata) == (join_id, key, text)
    assert store.joins.list(grouping_key=f"{key}'") == []


@many
@given(text=holdable)
def test_a_savepoint(store: Store, text: str) -> None:
    assume(len(text.encode()) < 64)  # what is longer, the server cuts off
    stream_name = f"fuzz-{uuid4()}"
    with store.transaction() as transaction:
        transaction.savepoint(text)
        transaction.write_message(stream_name, "Opened")
        transaction.rollback_to_savepoint(text)

    assert store.stream_version(stream_name) is None
