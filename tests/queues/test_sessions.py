"""What each call of a session does, in both commit modes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from penstock import CommitMode, Store
from penstock.errors import (
    NothingToCommit,
    OffsetBeyondTail,
    SessionClosed,
    SessionFenced,
    ValidationError,
)
from penstock.queues.operations import open_session
from penstock.queues.session_state import SessionState
from tests.queues.polling import offsets
from tests.racing import wait_until_it_waits

AUTO = CommitMode.AUTO_COMMIT
MANUAL = CommitMode.MANUAL_COMMIT


class TestAutoCommit:
    def test_returns_each_record_once_in_order(self, queue: Any) -> None:
        queue.offer_many(["a", "b", "c"])

        session = queue.create_consumer("worker")

        assert [session.poll().value for _ in range(3)] == ["a", "b", "c"]
        assert session.poll() is None

    def test_is_the_default(self, queue: Any) -> None:
        assert queue.create_consumer("worker").mode is AUTO

    def test_stores_the_offset_with_each_poll(self, queue: Any) -> None:
        queue.offer_many(["a", "b"])
        session = queue.create_consumer("worker")

        session.poll()

        assert session.committed_offset() == 1

    def test_goes_on_after_a_restart_behind_what_was_polled(self, queue: Any) -> None:
        queue.offer_many(["a", "b"])
        with queue.create_consumer("worker") as session:
            session.poll()

        with queue.create_consumer("worker") as session:
            assert session.poll().value == "b"

    def test_both_commits_do_nothing_in_silence(self, queue: Any) -> None:
        queue.offer_many(["a", "b"])
        session = queue.create_consumer("worker")
        session.poll()

        session.commit()
        session.commit()
        session.commit(0)
        session.commit(1_000)

        assert session.committed_offset() == 1

    def test_a_repeated_poll_of_one_session_returns_the_same_record(
        self, shared_store: Store
    ) -> None:
        queue = shared_store.queue(f"orders-{uuid4()}")
        queue.offer_many(["a", "b"])
        opened = open_session(shared_store.context, queue.stream_name, "worker")
        id, _ = shared_store.run(opened)
        poll = SessionState(shared_store.context, id, 0, AUTO, read_ahead=False).poll().operation

        # as after a reply that was lost
        first, again = shared_store.run(poll), shared_store.run(poll)

        assert first[1] == again[1]
        assert queue.create_consumer("worker").committed_offset() == 1


class TestManualCommit:
    def test_a_second_poll_without_commit_returns_the_same_record(self, queue: Any) -> None:
        queue.offer_many(["a", "b"])
        session = queue.create_consumer("worker", MANUAL)

        assert [session.poll().value for _ in range(3)] == ["a", "a", "a"]
        assert session.committed_offset() == 0

    def test_a_commit_goes_on_to_the_next_record(self, queue: Any) -> None:
        queue.offer_many(["a", "b"])
        session = queue.create_consumer("worker", MANUAL)
        session.poll()

        session.commit()

        assert session.committed_offset() == 1
        assert session.poll().value == "b"

    def test_what_was_not_committed_comes_again_after_a_restart(self, queue: Any) -> None:
        queue.offer_many(["a", "b"])
        with queue.create_consumer("worker", MANUAL) as session:
            session.poll()

        with queue.create_consumer("worker", MANUAL) as session:
            assert session.poll().value == "a"

    def test_what_was_committed_does_not_come_again_after_a_restart(self, queue: Any) -> None:
        queue.offer_many(["a", "b"])
        with queue.create_consumer("worker", MANUAL) as session:
            session.poll()
            session.commit()

        with queue.create_consumer("worker", MANUAL) as session:
            assert session.poll().value == "b"

    def test_a_commit_before_the_first_poll_is_refused(self, queue: Any) -> None:
        queue.offer("a")
        session = queue.create_consumer("worker", MANUAL)

        with pytest.raises(NothingToCommit) as error:
            session.commit()

        assert isinstance(error.value, RuntimeError)
        assert (error.value.stream_name, error.value.consumer_id) == (queue.stream_name, "worker")
        assert session.committed_offset() == 0

    def test_a_second_commit_without_poll_is_refused(self, queue: Any) -> None:
        queue.offer_many(["a", "b"])
        session = queue.create_consumer("worker", MANUAL)
        session.poll()
        session.commit()

        with pytest.raises(NothingToCommit):
            session.commit()

        assert session.committed_offset() == 1

    def test_a_poll_that_found_nothing_leaves_nothing_to_commit(self, queue: Any) -> None:
        session = queue.create_consumer("worker", MANUAL)
        session.poll()

        with pytest.raises(NothingToCommit):
            session.commit()

    def test_a_given_offset_may_pass_over_records(self, queue: Any) -> None:
        queue.offer_many(["a", "b", "c", "d"])
        session = queue.create_consumer("worker", MANUAL)
        session.poll()

        session.commit(2)

        assert session.committed_offset() == 3
        assert session.poll().value == "d"

    def test_a_lower_offset_is_ignored(self, queue: Any) -> None:
        queue.offer_many(["a", "b", "c"])
        session = queue.create_consumer("worker", MANUAL)
        session.commit(1)

        session.commit(0)

        assert session.committed_offset() == 2
        assert session.poll().value == "c"

    def test_the_same_offset_may_be_committed_again(self, queue: Any) -> None:
        queue.offer_many(["a", "b"])
        session = queue.create_consumer("worker", MANUAL)

        session.commit(0)
        session.commit(0)

        assert session.committed_offset() == 1

    def test_an_offset_beyond_the_tail_is_refused(self, queue: Any) -> None:
        queue.offer_many(["a", "b"])
        session = queue.create_consumer("worker", MANUAL)

        with pytest.raises(OffsetBeyondTail) as error:
            session.commit(2)

        refused = error.value
        assert (refused.stream_name, refused.offset, refused.tail) == (queue.stream_name, 2, 2)
        assert session.committed_offset() == 0
        assert session.poll().value == "a"

    def test_the_last_record_polled_stays_to_be_committed_after_a_lower_commit(
        self, queue: Any
    ) -> None:
        queue.offer_many(["a", "b", "c"])
        session = queue.create_consumer("worker", MANUAL)
        session.commit(1)
        session.poll()
        session.commit(0)

        session.commit()

        assert session.committed_offset() == 3


class TestReadAhead:
    def test_poll_moves_on_without_a_commit(self, queue: Any) -> None:
        queue.offer_many(["a", "b", "c"])

        session = queue.create_consumer("worker", MANUAL, read_ahead=True)

        assert offsets(session) == [0, 1, 2]
        assert session.committed_offset() == 0

    def test_commit_stores_the_last_record_polled(self, queue: Any) -> None:
        queue.offer_many(["a", "b", "c"])
        session = queue.create_consumer("worker", MANUAL, read_ahead=True)
        offsets(session)

        session.commit()

        assert session.committed_offset() == 3
        with pytest.raises(NothingToCommit):
            session.commit()

    def test_an_earlier_record_may_be_committed_first(self, queue: Any) -> None:
        queue.offer_many(["a", "b", "c"])
        session = queue.create_consumer("worker", MANUAL, read_ahead=True)
        offsets(session)

        session.commit(0)

        assert session.committed_offset() == 1
        assert session.poll() is None
        session.commit()
        assert session.committed_offset() == 3

    def test_what_was_not_committed_comes_again_after_a_restart(self, queue: Any) -> None:
        queue.offer_many(["a", "b", "c"])
        with queue.create_consumer("worker", MANUAL, read_ahead=True) as session:
            offsets(session)
            session.commit(0)

        with queue.create_consumer("worker", MANUAL, read_ahead=True) as session:
            assert offsets(session) == [1, 2]

    def test_is_refused_where_every_poll_is_committed(self, queue: Any) -> None:
        with pytest.raises(ValidationError, match="read_ahead must be False"):
            queue.create_consumer("worker", AUTO, read_ahead=True)


class TestSeek:
    def test_goes_to_an_offset(self, queue: Any, mode: CommitMode) -> None:
        queue.offer_many(["a", "b", "c"])
        session = queue.create_consumer("worker", mode)

        skipped = session.seek(2)

        assert skipped == 0
        assert session.poll().value == "c"

    def test_to_the_beginning_reads_all_again(self, queue: Any, mode: CommitMode) -> None:
        queue.offer_many(["a", "b"])
        queue.commit_offset("worker", 2)
        session = queue.create_consumer("worker", mode)

        skipped = session.seek_to_beginning()

        assert skipped == 0
        assert session.poll().value == "a"

    def test_to_the_end_waits_for_new_records(self, queue: Any, mode: CommitMode) -> None:
        queue.offer_many(["a", "b"])
        session = queue.create_consumer("worker", mode)

        skipped = session.seek_to_end()

        assert skipped == 0
        assert session.poll() is None
        queue.offer("c")
        assert session.poll().value == "c"

    def test_works_on_an_empty_queue(self, queue: Any, mode: CommitMode) -> None:
        session = queue.create_consumer("worker", mode)

        assert (session.seek(0), session.seek_to_beginning(), session.seek_to_end()) == (0, 0, 0)
        assert session.poll() is None

    def test_to_the_tail_is_allowed_and_not_beyond(self, queue: Any, mode: CommitMode) -> None:
        queue.offer_many(["a", "b"])
        session = queue.create_consumer("worker", mode)
        session.seek(2)

        with pytest.raises(OffsetBeyondTail) as error:
            session.seek(3)

        assert (error.value.offset, error.value.tail) == (3, 2)
        assert session.poll() is None

    def test_is_stored_at_once_in_auto_mode(self, queue: Any) -> None:
        queue.offer_many(["a", "b", "c"])
        session = queue.create_consumer("worker")
        offsets(session)

        session.seek(1)

        assert session.committed_offset() == 1
        assert queue.create_consumer("worker").poll().value == "b"

    def test_is_not_stored_in_manual_mode(self, queue: Any) -> None:
        queue.offer_many(["a", "b", "c"])
        session = queue.create_consumer("worker", MANUAL)

        session.seek(2)
        session.poll()

        assert session.committed_offset() == 0
        assert queue.create_consumer("worker", MANUAL).poll().value == "a"

    def test_back_is_stored_by_the_first_commit(self, queue: Any) -> None:
        queue.offer_many(["a", "b", "c"])
        session = queue.create_consumer("worker", MANUAL)
        session.commit(2)
        session.seek(0)
        session.poll()

        session.commit()

        assert session.committed_offset() == 1
        assert session.poll().value == "b"

    def test_only_the_first_commit_after_it_goes_back(self, queue: Any) -> None:
        queue.offer_many(["a", "b", "c"])
        session = queue.create_consumer("worker", MANUAL)
        session.commit(2)
        session.seek(1)
        session.commit(1)

        session.commit(0)

        assert session.committed_offset() == 2

    def test_can_be_stored_without_a_poll(self, queue: Any) -> None:
        queue.offer_many(["a", "b", "c"])
        session = queue.create_consumer("worker", MANUAL)
        session.commit(2)
        session.seek_to_beginning()

        session.commit()

        assert session.committed_offset() == 0
        with pytest.raises(NothingToCommit):
            session.commit()

    def test_forgets_the_record_polled_before_it(self, queue: Any) -> None:
        queue.offer_many(["a", "b", "c"])
        session = queue.create_consumer("worker", MANUAL)
        session.poll()
        session.seek(2)

        session.commit()

        assert session.committed_offset() == 2

    def test_a_lower_commit_after_it_stores_where_it_went(self, queue: Any) -> None:
        queue.offer_many(["a", "b", "c"])
        session = queue.create_consumer("worker", MANUAL)
        session.seek(2)

        session.commit(0)

        assert session.committed_offset() == 2

    def test_a_seek_that_was_refused_changes_nothing(self, queue: Any) -> None:
        queue.offer_many(["a", "b"])
        session = queue.create_consumer("worker", MANUAL)
        session.poll()
        with pytest.raises(OffsetBeyondTail):
            session.seek(7)

        session.commit()

        assert session.committed_offset() == 1


class TestClose:
    def test_keeps_the_offset(self, queue: Any) -> None:
        queue.offer_many(["a", "b"])
        session = queue.create_consumer("worker", MANUAL)
        session.poll()
        session.commit()

        session.close()

        assert queue.create_consumer("worker").committed_offset() == 1

    @pytest.mark.parametrize(
        "call",
        [
            lambda session: session.poll(),
            lambda session: session.poll(60),
            lambda session: session.commit(),
            lambda session: session.commit(0),
            lambda session: session.seek(0),
            lambda session: session.seek_to_beginning(),
            lambda session: session.seek_to_end(),
            lambda session: session.skip(),
            lambda session: session.committed_offset(),
        ],
        ids=[
            "poll", "poll in time", "commit", "commit offset", "seek", "beginning", "end", "skip",
            "committed_offset",
        ],
    )  # fmt: skip
    def test_leaves_nothing_to_use(self, queue: Any, mode: CommitMode, call: Any) -> None:
        queue.offer("a")
        session = queue.create_consumer("worker", mode)
        session.close()

        with pytest.raises(SessionClosed) as error:
            call(session)

        assert (error.value.stream_name, error.value.consumer_id) == (queue.stream_name, "worker")

    def test_may_be_repeated(self, queue: Any) -> None:
        session = queue.create_consumer("worker")

        session.close()
        session.close()

        assert session.consumer_id == "worker"

    def test_comes_at_the_end_of_a_with_block(self, queue: Any) -> None:
        with queue.create_consumer("worker") as session:
            pass

        with pytest.raises(SessionClosed):
            session.poll()


class TestConsumers:
    def test_each_has_an_offset_of_its_own(self, queue: Any) -> None:
        queue.offer_many(["a", "b"])
        one, other = queue.create_consumer("one"), queue.create_consumer("other")

        assert offsets(one) == offsets(other) == [0, 1]

    def test_the_mode_may_change_from_one_session_to_the_next(self, queue: Any) -> None:
        queue.offer_many(["a", "b", "c"])
        with queue.create_consumer("worker", AUTO) as session:
            session.poll()
        with queue.create_consumer("worker", MANUAL) as session:
            session.poll()
            session.commit()

        with queue.create_consumer("worker", AUTO) as session:
            assert session.poll().value == "c"

    def test_an_id_may_hold_any_text(self, queue: Any) -> None:
        queue.offer("a")
        consumer_id = "wörker-1:'; --😀 %s"

        session = queue.create_consumer(consumer_id)

        assert session.consumer_id == consumer_id
        assert session.poll().value == "a"


class TestBadInput:
    @pytest.mark.parametrize("consumer_id", ["", None, 7, "a\0b", "\ud800"])
    def test_a_consumer_id_is_a_text(self, queue: Any, consumer_id: Any) -> None:
        with pytest.raises(ValidationError) as error:
            queue.create_consumer(consumer_id)
        with pytest.raises(ValidationError):
            queue.commit_offset(consumer_id, 0)

        assert (error.value.name, error.value.value) == ("consumer_id", consumer_id)

    @pytest.mark.parametrize("offset", [-1, 1.0, "1", True, 2**63 - 1, 2**70])
    def test_an_offset_is_a_whole_number_of_0_or_more(self, queue: Any, offset: Any) -> None:
        queue.offer("a")
        session = queue.create_consumer("worker", MANUAL)

        for call in (session.seek, session.commit, queue.fetch_at):
            with pytest.raises(ValidationError) as error:
                call(offset)
            assert (error.value.name, error.value.value) == ("offset", offset)
        with pytest.raises(ValidationError):
            queue.commit_offset("worker", offset)

        assert session.poll().value == "a"

    @pytest.mark.parametrize("mode", [None, "auto", True])
    def test_a_mode_is_a_commit_mode(self, queue: Any, mode: Any) -> None:
        session = queue.create_consumer("worker")

        with pytest.raises(ValidationError) as error:
            queue.create_consumer("worker", mode)

        assert (error.value.name, error.value.value) == ("mode", mode)
        assert session.poll() is None  # and was not fenced

    @pytest.mark.parametrize("timeout", [-1, float("nan"), "1", True])
    def test_a_timeout_is_a_number_of_seconds(self, queue: Any, timeout: Any) -> None:
        session = queue.create_consumer("worker")

        with pytest.raises(ValidationError) as error:
            session.poll(timeout)

        assert error.value.name == "timeout"


class TestOverview:
    """An operator lists the consumers of queues."""

    def test_they_come_in_pages(self, store: Any) -> None:
        for name in ("orders", "mail"):
            for consumer_id in ("worker", "reader"):
                store.queue(name).create_consumer(consumer_id)

        first = store.admin.sessions(limit=3)
        last = (first[-1].queue, first[-1].consumer_id)
        second = store.admin.sessions(after=last, limit=3)

        names = [(one.queue, one.consumer_id) for one in first]
        assert names == [("mail", "reader"), ("mail", "worker"), ("orders", "reader")]
        assert [(one.queue, one.consumer_id) for one in second] == [("orders", "worker")]

    def test_one_alone(self, store: Any) -> None:
        queue = store.queue("orders")
        queue.offer_many(["a", "b", "c"])
        queue.create_consumer("worker").poll()

        one = store.admin.session("orders", "worker")

        assert (one.queue, one.next_offset, one.tail, one.behind) == ("orders", 1, 3, 2)
        assert store.admin.session("orders", "nobody") is None
        assert [found.behind for found in store.admin.sessions(count_up_to=1)] == [1]

    def test_removed_records_do_not_wait(self, store: Any) -> None:
        queue = store.queue("orders")
        queue.offer_many(["a", "b", "c"])
        queue.create_consumer("worker")

        store.admin.retain("queue-orders", keep_count=1, ignore_consumers=True)

        assert store.admin.session("orders", "worker").behind == 1


class TestRemoval:
    """An operator removes a queue's consumer."""

    def test_its_offset_is_gone(self, store: Any) -> None:
        queue = store.queue("orders")
        queue.offer_many(["a", "b"])
        queue.create_consumer("worker").poll()

        store.admin.remove_session("orders", "worker")

        assert store.admin.sessions() == []
        assert queue.create_consumer("worker").poll().value == "a"

    @pytest.mark.parametrize("again", [False, True], ids=["gone", "opened again"])
    def test_an_open_session_is_fenced_for_good(
        self, store: Any, mode: CommitMode, again: bool
    ) -> None:
        queue = store.queue("orders")
        queue.offer_many(["a", "b"])
        session = queue.create_consumer("worker", mode)
        session.poll()

        store.admin.remove_session("orders", "worker")
        if again:
            queue.create_consumer("worker")

        with pytest.raises(SessionFenced, match="removed"):
            session.poll()

    def test_a_commit_under_way_is_removed_with_the_rest(
        self, store: Any, database_url: str
    ) -> None:
        store.queue("orders").offer("a")
        store.queue("orders").create_consumer("worker")
        with psycopg.connect(database_url) as committing, ThreadPoolExecutor(1) as threads:
            committing.execute("select penstock.commit_offset('queue-orders', 'worker', 1)")
            removal = threads.submit(store.admin.remove_session, "orders", "worker")
            wait_until_it_waits(database_url, removal)
            committing.commit()
            removal.result()

        assert store.admin.sessions() == []

    def test_retention_does_not_wait_for_it(self, store: Any) -> None:
        queue = store.queue("orders")
        queue.offer_many(range(4))
        queue.create_consumer("worker")
        held = store.admin.retain("queue-orders", keep_count=1)

        store.admin.remove_session("orders", "worker")

        assert held.removed == 0
        assert store.admin.retain("queue-orders", keep_count=1).removed == 3

    def test_the_others_stay(self, store: Any) -> None:
        for name in ("orders", "mail"):
            for consumer_id in ("worker", "reader"):
                store.queue(name).create_consumer(consumer_id)

        store.admin.remove_session("orders", "worker")

        left = [(one.queue, one.consumer_id) for one in store.admin.sessions()]
        assert left == [("mail", "reader"), ("mail", "worker"), ("orders", "reader")]

    @pytest.mark.parametrize("wrong", [("orders", "wroker"), ("oders", "worker"), ("orders", "")])
    def test_an_unknown_one_is_refused(self, store: Any, wrong: tuple[str, str]) -> None:
        store.queue("orders").create_consumer("worker")

        with pytest.raises(ValidationError):
            store.admin.remove_session(*wrong)
