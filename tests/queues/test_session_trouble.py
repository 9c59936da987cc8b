"""Sessions and other sessions, removed records, undecodable records, and rollbacks."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

import penstock
from penstock import CommitMode, ConsumerSession, Store
from penstock.errors import (
    NothingToCommit,
    NothingToSkip,
    OffsetBeyondTail,
    SessionFenced,
    UndecodableRecord,
)
from tests.both_ways import Way
from tests.queues.polling import retain_from
from tests.racing import at_once, wait_until_blocked, wait_until_it_waits

AUTO = CommitMode.AUTO_COMMIT
MANUAL = CommitMode.MANUAL_COMMIT


class TestFencing:
    def test_a_second_session_with_the_same_id_fences_the_first(
        self, queue: Any, mode: CommitMode
    ) -> None:
        queue.offer_many(["a", "b"])
        first = queue.create_consumer("worker", mode)

        second = queue.create_consumer("worker", mode)

        with pytest.raises(SessionFenced) as error:
            first.poll()
        assert (error.value.stream_name, error.value.consumer_id) == (queue.stream_name, "worker")
        assert second.poll().value == "a"

    @pytest.mark.parametrize(
        "call",
        [
            lambda session: session.poll(),
            lambda session: session.poll(1),
            lambda session: session.commit(0),
            lambda session: session.seek(0),
            lambda session: session.seek_to_beginning(),
            lambda session: session.seek_to_end(),
            lambda session: session.committed_offset(),
        ],
        ids=["poll", "poll in time", "commit", "seek", "beginning", "end", "committed_offset"],
    )
    def test_a_fenced_session_does_nothing_more(self, queue: Any, call: Any) -> None:
        queue.offer_many(["a", "b"])
        first = queue.create_consumer("worker", MANUAL)
        second = queue.create_consumer("worker", MANUAL)
        second.poll()
        second.commit()

        with pytest.raises(SessionFenced):
            call(first)

        assert second.committed_offset() == 1

    def test_a_record_polled_before_the_fence_cannot_be_committed_after_it(
        self, queue: Any
    ) -> None:
        queue.offer_many(["a", "b"])
        first = queue.create_consumer("worker", MANUAL)
        first.poll()
        second = queue.create_consumer("worker", MANUAL)

        with pytest.raises(SessionFenced):
            first.commit()

        assert second.poll().value == "a"

    def test_a_fenced_session_does_not_move_the_offset_by_an_auto_poll_or_seek(
        self, queue: Any
    ) -> None:
        queue.offer_many(["a", "b"])
        first = queue.create_consumer("worker")
        second = queue.create_consumer("worker")

        for call in (first.poll, first.seek_to_end):
            with pytest.raises(SessionFenced):
                call()

        assert second.committed_offset() == 0

    def test_a_fenced_session_learns_it_also_from_an_empty_queue(
        self, queue: Any, mode: CommitMode
    ) -> None:
        first = queue.create_consumer("worker", mode)
        queue.create_consumer("worker", mode)

        with pytest.raises(SessionFenced):
            first.poll()

    def test_other_consumers_and_other_queues_are_left_alone(
        self, queue: Any, shared_store: Store
    ) -> None:
        queue.offer("a")
        session = queue.create_consumer("worker")

        queue.create_consumer("another")
        shared_store.queue(f"another-{uuid4()}").create_consumer("worker")

        assert session.poll().value == "a"

    def test_a_poll_that_meets_an_opening_session_waits_for_it_and_is_fenced(
        self, shared_store: Store, shared_url: str
    ) -> None:
        queue = shared_store.queue(f"orders-{uuid4()}")
        queue.offer("a")
        first = queue.create_consumer("worker")

        def open_second() -> int:
            with shared_store.transaction() as tx:
                second = tx.queue(queue.name).create_consumer("worker")
                opened.set()
                wait_until_blocked(shared_url)
                return second.committed_offset()

        def poll_first() -> Any:
            opened.wait()
            return first.poll()

        opened = threading.Event()
        offset, polled = at_once(open_second, poll_first)

        assert offset == 0
        assert isinstance(polled, SessionFenced)
        assert queue.create_consumer("worker").poll() is not None

    def test_of_two_first_sessions_that_open_at_once_one_is_fenced(
        self, way: Way, shared_store: Store, shared_url: str
    ) -> None:
        queue = shared_store.queue(f"orders-{uuid4()}")
        queue.offer("a")
        with ThreadPoolExecutor(1) as threads, way.open_connection(shared_url) as connection:
            first = shared_store.using(connection).queue(queue.name).create_consumer("worker")
            opening = threads.submit(queue.create_consumer, "worker")
            wait_until_it_waits(shared_url, opening)
            connection.commit()
            second = opening.result()

            with pytest.raises(SessionFenced):
                first.poll()

        record = second.poll()
        assert record is not None
        assert record.value == "a"


class TestRetention:
    def test_keeps_what_a_consumer_has_not_read(self, queue: Any, shared_store: Store) -> None:
        queue.offer_many(range(6))
        session = queue.create_consumer("worker", MANUAL)
        session.commit(2)

        retained = shared_store.admin.retain(queue.stream_name, keep_from=5)

        assert retained.held_back_by is not None
        assert (retained.removed, retained.held_back_by.name) == (3, "worker")
        assert session.poll().offset == 3
        assert session.missed == 0

    def test_that_overrules_a_consumer_tells_it_what_it_missed(
        self, queue: Any, shared_store: Store, mode: CommitMode
    ) -> None:
        queue.offer_many(range(6))
        session = queue.create_consumer("worker", mode)

        shared_store.admin.retain(queue.stream_name, keep_count=0, ignore_consumers=True)

        assert session.poll().offset == 5
        assert session.missed == 5

    def test_a_seek_below_it_goes_to_the_oldest_and_says_how_many_are_gone(
        self, queue: Any, shared_url: str, mode: CommitMode
    ) -> None:
        queue.offer_many(range(6))
        session = queue.create_consumer("worker", mode)
        retain_from(shared_url, queue, 4)

        skipped = [session.seek(1), session.seek_to_beginning(), session.seek(4), session.seek(5)]
        session.seek(0)

        assert skipped == [3, 4, 0, 0]
        assert session.poll().offset == 4
        assert session.missed == 0

    def test_a_poll_below_it_goes_on_at_the_oldest_and_counts_what_it_missed(
        self, queue: Any, shared_url: str, mode: CommitMode, caplog: pytest.LogCaptureFixture
    ) -> None:
        queue.offer_many(range(6))
        session = queue.create_consumer("worker", mode)
        retain_from(shared_url, queue, 4)

        with caplog.at_level(logging.WARNING, "penstock"):
            record = session.poll()

        assert (record.offset, session.missed) == (4, 4)
        assert [one.getMessage() for one in caplog.records] == [
            f"consumer worker of {queue.stream_name} missed 4 records: "
            "retention removed them before they were read"
        ]

    def test_what_was_missed_is_counted_once(self, queue: Any, shared_url: str) -> None:
        queue.offer_many(range(6))
        session = queue.create_consumer("worker", MANUAL)
        retain_from(shared_url, queue, 4)

        session.poll()
        session.poll()
        session.commit()

        assert session.missed == 4
        assert session.committed_offset() == 5

    def test_what_was_polled_and_then_removed_can_be_committed(
        self, queue: Any, shared_url: str
    ) -> None:
        queue.offer_many(range(6))
        session = queue.create_consumer("worker", MANUAL)
        session.poll()
        retain_from(shared_url, queue, 4)

        session.commit()

        assert session.committed_offset() == 1
        assert session.poll().offset == 4
        assert session.missed == 3

    def test_a_record_that_was_removed_cannot_be_fetched(self, queue: Any, shared_url: str) -> None:
        queue.offer_many(range(6))

        retain_from(shared_url, queue, 4)

        assert queue.fetch_at(3) is None
        assert queue.fetch_at(4).value == 4

    def test_an_emptied_stream_does_not_look_like_no_data(
        self, queue: Any, shared_url: str, mode: CommitMode
    ) -> None:
        queue.offer_many(range(3))
        queue.commit_offset("worker", 3)
        session = queue.create_consumer("worker", mode)
        # retention itself keeps the last record, which holds the version
        retain_from(shared_url, queue, 3)

        with pytest.raises(OffsetBeyondTail) as error:
            session.poll()

        assert (error.value.offset, error.value.tail) == (3, 0)
        session.seek_to_beginning()
        queue.offer("new")
        assert session.poll().value == "new"


class TestUndecodableRecords:
    @pytest.mark.parametrize(
        ("type", "data", "metadata", "reason"),
        [
            ("Placed", {"value": 1}, None, "a message of type 'Placed' is not a record"),
            ("Offered", {}, None, "its data should have one field, 'value'"),
            ("Offered", {"value": 1, "x": 2}, None, "its data should have one field, 'value'"),
            ("Offered", {"value": 1}, {"key": 7}, "its key should be text"),
            ("Offered", {"value": 1}, {"key_base64": "%"}, "Only base64 data is allowed"),
            ("Offered", {"value": 1}, {"key_base64": 7}, "..."),
            (
                "Offered",
                {"value": 1},
                {"headers": ["x"]},
                "its headers should be an object of text",
            ),
            ("Offered", {"value": 1}, {"headers": {"x": 1}}, "its headers should be an object of"),
        ],
    )
    def test_a_foreign_message_is_named_by_its_offset(
        self, queue: Any, shared_store: Store, type: str, data: Any, metadata: Any, reason: str
    ) -> None:
        queue.offer("a")
        shared_store.write_message(queue.stream_name, type, data, metadata)
        session = queue.create_consumer("worker")
        session.poll()

        with pytest.raises(UndecodableRecord) as error:
            session.poll()

        assert (error.value.stream_name, error.value.offset) == (queue.stream_name, 1)
        assert reason == "..." or reason in str(error.value)

    def test_comes_again_until_it_is_skipped(
        self, queue: Any, shared_store: Store, mode: CommitMode
    ) -> None:
        shared_store.write_message(queue.stream_name, "Foreign")
        queue.offer("b")
        session = queue.create_consumer("worker", mode)
        for _ in range(2):
            with pytest.raises(UndecodableRecord):
                session.poll()

        skipped = session.skip()

        assert skipped == 0
        assert session.poll().value == "b"

    def test_can_be_passed_over_by_a_seek(
        self, queue: Any, shared_store: Store, mode: CommitMode
    ) -> None:
        shared_store.write_message(queue.stream_name, "Foreign")
        queue.offer("b")
        session = queue.create_consumer("worker", mode)
        with pytest.raises(UndecodableRecord) as error:
            session.poll()

        session.seek(error.value.offset + 1)

        assert session.poll().value == "b"

    def test_a_skip_is_stored_by_the_next_commit(self, queue: Any, shared_store: Store) -> None:
        shared_store.write_message(queue.stream_name, "Foreign")
        session = queue.create_consumer("worker", MANUAL)
        with pytest.raises(UndecodableRecord):
            session.poll()
        with pytest.raises(NothingToCommit):
            session.commit()
        session.skip()
        assert session.committed_offset() == 0

        session.commit()

        assert session.committed_offset() == 1

    def test_can_be_passed_over_by_a_commit(self, queue: Any, shared_store: Store) -> None:
        shared_store.write_message(queue.stream_name, "Foreign")
        queue.offer("b")
        session = queue.create_consumer("worker", MANUAL)
        with pytest.raises(UndecodableRecord) as error:
            session.poll()

        session.commit(error.value.offset)

        assert session.poll().value == "b"
        with pytest.raises(NothingToSkip):
            session.skip()

    def test_reading_ahead_commits_no_more_than_was_read(
        self, queue: Any, shared_store: Store
    ) -> None:
        queue.offer_many(["a", "b"])
        shared_store.write_message(queue.stream_name, "Foreign")
        session = queue.create_consumer("worker", MANUAL, read_ahead=True)
        session.poll()
        session.poll()
        with pytest.raises(UndecodableRecord):
            session.poll()

        session.commit()

        assert session.committed_offset() == 2
        assert session.skip() == 2

    def test_skips_nothing_else(self, queue: Any, mode: CommitMode) -> None:
        queue.offer("a")
        session = queue.create_consumer("worker", mode)
        session.poll()

        with pytest.raises(NothingToSkip):
            session.skip()

    def test_a_value_that_the_serializer_refuses_is_named_by_its_offset(
        self, way: Way, shared_url: str
    ) -> None:
        with way.connect(shared_url, serializer=Forgetful()) as store:
            queue = store.queue(f"orders-{uuid4()}")
            queue.offer_many(["good", "bad", "good"])
            session = queue.create_consumer("worker")
            session.poll()

            with pytest.raises(UndecodableRecord, match=r"record 1 of .* cannot be decoded: 'bad'"):
                session.poll()
            with pytest.raises(UndecodableRecord):
                queue.fetch_at(1)

            session.skip()
            record = session.poll()
            assert record is not None
            assert record.value == "good"


class Renumbering(penstock.Interceptor):
    """Gives each message that is read another position."""

    def on_read(self, message: penstock.RecordedMessage) -> penstock.RecordedMessage:
        return replace(message, position=message.position + 100)


def test_an_interceptor_that_changes_positions_does_not_move_the_offset(
    way: Way, shared_url: str, mode: CommitMode
) -> None:
    with way.connect(shared_url, interceptors=[Renumbering()]) as store:
        queue = store.queue(f"orders-{uuid4()}")
        queue.offer_many(["a", "b"])
        session = queue.create_consumer("worker", mode)

        first = session.poll()
        session.commit()
        second = session.poll()

    assert [(one.offset, one.value) for one in (first, second)] == [(0, "a"), (1, "b")]


class Forgetful(penstock.JsonSerializer):
    """Cannot decode some of what it encoded."""

    def decode(self, type: str, text: str) -> dict[str, Any]:
        decoded = super().decode(type, text)
        return {"value": {"good": "good"}[decoded["value"]]}


class TestARollback:
    """In your own transaction, it also undoes commits, and the session goes back."""

    @pytest.mark.parametrize("mode", CommitMode)
    def test_lets_the_record_come_again(
        self, way: Way, shared_store: Store, shared_url: str, mode: CommitMode
    ) -> None:
        name = f"orders-{uuid4()}"
        shared_store.queue(name).offer_many(["a", "b"])
        with way.open_connection(shared_url) as connection:
            session = shared_store.using(connection).queue(name).create_consumer("worker", mode)
            connection.commit()
            session.poll()
            session.commit()
            connection.rollback()

            assert offsets_committed(session) == [0, 1]

    @pytest.mark.parametrize("mode", CommitMode)
    def test_to_a_savepoint_does_too(self, shared_store: Store, mode: CommitMode) -> None:
        name = f"orders-{uuid4()}"
        shared_store.queue(name).offer_many(["a", "b", "c"])
        with shared_store.transaction() as tx:
            session = tx.queue(name).create_consumer("worker", mode)
            session.poll()
            session.commit()
            tx.savepoint("before")
            session.poll()
            session.commit()
            tx.rollback_to_savepoint("before")

            assert offsets_committed(session) == [1, 2]

    def test_leaves_nothing_of_what_was_polled_since_to_commit(
        self, way: Way, shared_store: Store, shared_url: str
    ) -> None:
        name = f"orders-{uuid4()}"
        shared_store.queue(name).offer_many(["a", "b"])
        with way.open_connection(shared_url) as connection:
            queue = shared_store.using(connection).queue(name)
            session = queue.create_consumer("worker", CommitMode.MANUAL_COMMIT)
            connection.commit()
            session.poll()
            session.commit()
            session.poll()
            connection.rollback()

            with pytest.raises(NothingToCommit):
                session.commit()

            assert offsets_committed(session) == [0, 1]

    def test_of_its_opening_is_reported(
        self, way: Way, shared_store: Store, shared_url: str
    ) -> None:
        with way.open_connection(shared_url) as connection:
            queue = shared_store.using(connection).queue(f"orders-{uuid4()}")
            session = queue.create_consumer("worker")
            connection.rollback()

            with pytest.raises(SessionFenced, match="rolled back"):
                session.poll()


def offsets_committed(session: ConsumerSession) -> list[int]:
    """Poll and commit until there are no more records."""
    found = []
    while (record := session.poll()) is not None:
        found.append(record.offset)
        session.commit()
    return found
