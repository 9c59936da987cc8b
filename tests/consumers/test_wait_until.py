"""Wait until a write was handled: by a consumer, a group, a session, an outbox message, a join."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from penstock import Message, Store, TypedMessage
from penstock.errors import ReaderNotFound, ValidationError, WaitTimedOut
from tests.both_ways import way_of
from tests.consumers.consuming import new_category, new_consumer
from tests.racing import pause


class Noticed(TypedMessage, type="Noticed"):
    number: str


@contextmanager
def running(reader: Any) -> Iterator[None]:
    thread = threading.Thread(target=reader.run)
    thread.start()
    try:
        yield
    finally:
        reader.stop()
        thread.join()


def read_all(store: Store, category: str, consumer_id: str, **options: Any) -> None:
    handlers = {"Placed": lambda message: None}
    new_consumer(store, category, consumer_id, handlers=handlers, **options).run_until_idle()


def write(store: Store, category: str) -> int:
    return store.write_message(f"{category}-1", "Placed", returning="global_position")


class TestReturning:
    def test_a_write_can_return_its_position_in_the_log(self, any_store: Store) -> None:
        category = new_category()

        one = any_store.write_message(f"{category}-1", "A", returning="global_position")
        more = any_store.write_messages(
            f"{category}-1", [Message("B", {}), Message("C", {})], returning="global_position"
        )

        read = any_store.get_stream_messages(f"{category}-1")
        assert [one, *more] == [message.global_position for message in read]

    def test_a_repeated_write_returns_the_first_one_s(self, store: Store) -> None:
        first, second = Message("A", {}), Message("B", {})
        options: Any = {"returning": "global_position"}
        positions = store.write_messages("order-1", [first, second], **options)

        again = store.write_messages("order-1", [first, second], **options)

        assert again == positions
        assert store.write_message("order-1", second, **options) == positions[1]

    def test_nothing_else_can_be_returned(self, store: Store) -> None:
        options: Any = {"returning": "id"}

        with pytest.raises(ValidationError, match="returning must be 'position' or"):
            store.write_message("order-1", "A", **options)
        assert store.get_stream_messages("order-1") == []


@pytest.mark.parametrize("positions", ["stream", "table", "hybrid"])
def test_a_consumer_s_handler_has_run_for_what_was_written(store: Store, positions: str) -> None:
    category, handled = new_category(), list[int]()
    consumer = new_consumer(
        store,
        category,
        "reader",
        positions=positions,
        idle_save_delay=3600,
        handlers={"Placed": lambda message: handled.append(message.global_position)},
    )
    with running(consumer):
        for _ in range(3):
            position = write(store, category)

            store.wait_until("reader", position, category=category, timeout=60)

            assert handled[-1] == position


def test_its_category_need_not_be_named_unless_it_has_several(store: Store) -> None:
    first, second = new_category(), new_category()
    position = write(store, first)
    read_all(store, first, "reader")

    store.wait_until("reader", position)

    write(store, second)
    read_all(store, second, "reader")
    with pytest.raises(ValidationError, match=f"category must be one of .*{first}"):
        store.wait_until("reader", position)


def test_what_a_consumer_does_not_read_is_not_waited_for(store: Store) -> None:
    category = new_category()
    write(store, category)
    read_all(store, category, "reader")
    elsewhere = write(store, new_category())

    store.wait_until("reader", elsewhere, category=category, timeout=0)


def test_a_group_has_handled_all_its_partitions(store: Store) -> None:
    handled: list[str] = []

    def handle(claim: Any) -> None:
        handled.extend(message.data["number"] for message in claim.messages)

    worker = way_of(store).Worker(
        store, "noticing", handle, partition_by="number", handled_types=[Noticed]
    )
    with running(worker):
        appended = store.append([Noticed(number="1"), Noticed(number="2")])
        while not store.groups.is_active("noticing"):
            pause()

        store.wait_until(group="noticing", position=appended.position, timeout=60)

        assert sorted(handled) == ["1", "2"]


def test_a_session_has_committed_the_record(store: Store) -> None:
    queue = store.queue(f"orders-{uuid4()}")
    session = queue.create_consumer("shipping")
    queue.offer("a")
    position = store.category_head("queue")
    with pytest.raises(WaitTimedOut, match="it has come to -1 of queue-orders"):
        store.wait_until("shipping", position, queue=queue.name, timeout=0)

    session.poll()

    store.wait_until("shipping", position, queue=queue.name, timeout=0)


def test_an_outbox_message_is_finished(store: Store) -> None:
    message = store.outbox.enqueue("mail")
    dispatcher = way_of(store).Dispatcher(store)
    dispatcher.handler("mail")(lambda message: None)
    with pytest.raises(WaitTimedOut, match=f"the end of outbox message {message}.*it is ready"):
        store.wait_until(outbox=message, timeout=0)
    with running(dispatcher):
        assert store.wait_until(outbox=message, timeout=60) == "done"


def test_a_join_is_resolved(store: Store) -> None:
    join = store.joins.start(None, 1)
    store.outbox.enqueue("mail", joins=[join])
    store.joins.enqueue_wait(join, on_complete_topic="finished")
    dispatcher = way_of(store).Dispatcher(store)
    dispatcher.handler("mail")(lambda message: None)
    with running(dispatcher):
        assert store.wait_until(join=join, timeout=60) == "completed"


def test_a_timeout_says_how_far_it_has_come(store: Store) -> None:
    category = new_category()
    first = write(store, category)
    read_all(store, category, "reader")
    second = write(store, category)

    with pytest.raises(WaitTimedOut) as caught:
        store.wait_until("reader", second, category=category, timeout=timedelta(milliseconds=1))

    assert str(caught.value) == (
        f"position {second} of the log by consumer 'reader' of {category} was not reached within "
        f"0.001 s: it has come to {first} of {category}"
    )
    assert caught.value.retryable


def test_or_which_open_writer_holds_it_back(store: Store, database_url: str) -> None:
    category = new_category()
    write(store, category)
    read_all(store, category, "reader")
    with psycopg.connect(database_url, application_name="forgotten") as late:
        late.execute("select message_store.write_message(%s, 'a-1', 'T', '{}')", (str(uuid4()),))
        position = write(store, category)

        with pytest.raises(WaitTimedOut, match=r"an open writer holds it back: .*forgotten"):
            store.wait_until("reader", position, category=category, timeout=0)


WRONG: dict[str, Callable[[Store], object]] = {
    "no consumer 'nobody'": lambda store: store.wait_until("nobody", 0, timeout=0),
    "no consumer 'nobody' of order": lambda store: store.wait_until(
        "nobody", 0, category="order", timeout=0
    ),
    "no consumer 'nobody' of queue": lambda store: store.wait_until(
        "nobody", 0, queue="orders", timeout=0
    ),
    "no consumer group": lambda store: store.wait_until(group="nobody", position=0, timeout=0),
    "no processor": lambda store: store.wait_until(
        processor=("shop", "nobody"), position=0, timeout=0
    ),
    "no outbox message": lambda store: store.wait_until(outbox=uuid4()),
    "no join": lambda store: store.wait_until(join=uuid4()),
}


@pytest.mark.parametrize("message", WRONG)
def test_what_does_not_exist_cannot_be_waited_for(store: Store, message: str) -> None:
    with pytest.raises(ReaderNotFound, match=f"there is {message}"):
        WRONG[message](store)


INVALID: dict[str, Callable[[Store], object]] = {
    "exactly one of consumer_id, group": lambda store: store.wait_until(),
    "exactly one of consumer_id, ": lambda store: store.wait_until("a", 1, group="b"),
    "position must be a global position": lambda store: store.wait_until("reader"),
    "position must be a whole number": lambda store: store.wait_until("reader", -1),
    "position must be at most 1": lambda store: store.wait_until("reader", 2, category="order"),
    "timeout must be seconds": lambda store: store.wait_until("reader", 1, timeout=-1),
    "processor must be": lambda store: store.wait_until(processor="shop", position=1),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("message", INVALID)
def test_wrong_arguments_are_refused(store: Store, message: str) -> None:
    store.write_message("order-1", "Placed")
    read_all(store, "order", "reader", positions="table")

    with pytest.raises(ValidationError, match=message):
        INVALID[message](store)


@pytest.mark.parametrize("wrong", [{"timeout": -1}, {"position": -5}])
def test_wrong_values_are_refused_before_anything_is_looked_for(
    store: Store, wrong: dict[str, Any]
) -> None:
    arguments: dict[str, Any] = {"position": 1, **wrong}

    with pytest.raises(ValidationError):
        store.wait_until("nobody", **arguments)
