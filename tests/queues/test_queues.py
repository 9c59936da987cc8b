"""Offering records, and the calls underneath a session."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import CommitMode, ConsumedRecord, Record, Store
from penstock.errors import (
    DuplicateMessageId,
    OffsetBeyondTail,
    UnsupportedEdition,
    ValidationError,
)
from tests.both_ways import Way

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(-1e15, 1e15)
    | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc"), inner, max_size=3),
    max_leaves=8,
)
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)


class TestOffer:
    def test_returns_offsets_from_0_on(self, queue: Any) -> None:
        assert [queue.offer("a"), queue.offer("b"), queue.offer("c")] == [0, 1, 2]

    def test_writes_one_message_to_the_queues_stream(self, queue: Any, shared_store: Store) -> None:
        queue.offer({"sku": "A-1"}, key="ada", headers={"lang": "en"})

        (message,) = shared_store.get_stream_messages(queue.stream_name)
        assert queue.stream_name == f"queue-{queue.name}"
        assert (message.type, message.data) == ("Offered", {"value": {"sku": "A-1"}})
        assert message.metadata == {"key": "ada", "headers": {"lang": "en"}}

    def test_without_key_and_headers_there_is_no_metadata(
        self, queue: Any, shared_store: Store
    ) -> None:
        queue.offer("a")

        (message,) = shared_store.get_stream_messages(queue.stream_name)
        assert message.metadata is None

    @settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        value=JSON,
        key=st.none() | TEXT | st.binary(max_size=20),
        headers=st.none() | st.dictionaries(TEXT, TEXT, max_size=3),
    )
    def test_what_comes_back_is_what_was_offered(
        self, shared_store: Store, value: Any, key: str | bytes | None, headers: dict[str, str]
    ) -> None:
        queue = shared_store.queue("round-trip")

        offset = queue.offer(value, key, headers)

        record = queue.fetch_at(offset)
        assert record is not None
        assert (record.value, record.key, record.headers) == (value, key, headers or {})
        assert type(record.key) is type(key)

    def test_a_retry_with_the_same_id_returns_the_first_offset(self, queue: Any) -> None:
        id = uuid4()
        first = queue.offer("a", id=id)
        queue.offer("b")

        again = queue.offer("a", id=str(id))

        assert again == first == 0
        assert queue.fetch_at(2) is None

    def test_an_id_of_another_stream_is_refused(self, queue: Any, shared_store: Store) -> None:
        id = uuid4()
        shared_store.write_message(f"account-{id}", "Opened", id=id)

        with pytest.raises(DuplicateMessageId):
            queue.offer("a", id=id)

        assert queue.fetch_at(0) is None

    def test_in_a_transaction_is_committed_with_it(self, queue: Any, shared_store: Store) -> None:
        with shared_store.transaction() as tx:
            offset = tx.queue(queue.name).offer("a")
            assert queue.fetch_at(offset) is None

        assert queue.fetch_at(offset).value == "a"

    def test_in_a_transaction_is_undone_with_it(self, queue: Any, shared_store: Store) -> None:
        tx = shared_store.begin_transaction()
        tx.queue(queue.name).offer("a")

        tx.rollback()

        assert queue.offer("b") == 0

    def test_on_a_connection_of_your_own(self, way: Way, queue: Any, shared_store: Store) -> None:
        with way.open_connection(shared_store.settings.conninfo()) as connection:
            shared_store.using(connection).queue(queue.name).offer("a")

        assert queue.fetch_at(0).value == "a"


class TestOfferMany:
    def test_returns_the_offsets_in_order(self, queue: Any) -> None:
        queue.offer("first")

        assert queue.offer_many(["a", "b", "c"]) == [1, 2, 3]

    def test_takes_values_and_records(self, queue: Any) -> None:
        queue.offer_many([1, Record("b", b"\x00\xff", {"h": "x"}), None])

        records = [queue.fetch_at(offset) for offset in range(3)]
        assert [(one.value, one.key, one.headers) for one in records] == [
            (1, None, {}),
            ("b", b"\x00\xff", {"h": "x"}),
            (None, None, {}),
        ]

    def test_takes_any_iterable(self, queue: Any) -> None:
        assert queue.offer_many(number for number in range(3)) == [0, 1, 2]

    def test_of_nothing_adds_nothing(self, queue: Any) -> None:
        assert queue.offer_many([]) == []

    def test_the_same_records_again_add_nothing(self, queue: Any) -> None:
        records = [Record("a"), Record("b")]
        queue.offer_many(records)

        again = queue.offer_many(records)

        assert again == [0, 1]
        assert queue.fetch_at(2) is None

    def test_adds_all_or_none(self, queue: Any) -> None:
        with pytest.raises(ValidationError):
            queue.offer_many(["a", float("nan")])

        assert queue.fetch_at(0) is None


class TestRecords:
    def test_know_when_they_were_offered(self, queue: Any) -> None:
        before = datetime.now(UTC)

        queue.offer("a")

        record = queue.fetch_at(0)
        assert before.timestamp() - 60 < record.timestamp.timestamp()
        assert record.timestamp.tzinfo is UTC
        assert record.timestamp_ms == int(record.timestamp.timestamp() * 1000)

    @pytest.mark.parametrize(
        ("timestamp", "milliseconds"),
        [
            (datetime(1970, 1, 1, tzinfo=UTC), 0),
            (datetime(2026, 3, 29, 1, 2, 3, 456_999, tzinfo=UTC), 1_774_746_123_456),
        ],
    )
    def test_tell_it_in_milliseconds_too(self, timestamp: datetime, milliseconds: int) -> None:
        record = ConsumedRecord(0, None, {}, "a", timestamp)

        assert record.timestamp_ms == milliseconds


class TestBadInput:
    @pytest.mark.parametrize("name", ["", None, 7, "a\0b"])
    def test_a_name_is_a_text(self, shared_store: Store, name: Any) -> None:
        with pytest.raises(ValidationError) as error:
            shared_store.queue(name)

        assert (error.value.name, error.value.value) == ("name", name)

    @pytest.mark.parametrize(
        ("arguments", "named"),
        [
            ({"value": float("nan")}, "data['value']"),
            ({"value": float("inf")}, "data['value']"),
            ({"value": "a\0b"}, "data['value']"),
            ({"value": "\ud800"}, "data"),
            ({"value": object()}, "data"),
            ({"value": Record(1)}, "value"),
            ({"value": b"bytes"}, "value"),
            ({"value": (1, 2)}, "value"),
            ({"value": {"deep": [{1}]}}, "value"),
            ({"value": {1: 2}}, "value"),
            ({"value": uuid4()}, "value"),
            ({"value": datetime(2026, 1, 1, tzinfo=UTC)}, "value"),
            ({"value": Decimal("1.10")}, "value"),
            ({"value": 1, "key": 7}, "key"),
            ({"value": 1, "key": "a\0b"}, "metadata['key']"),
            ({"value": 1, "headers": ["x"]}, "headers"),
            ({"value": 1, "headers": {"x": 1}}, "headers"),
            ({"value": 1, "headers": {1: "x"}}, "headers"),
            ({"value": 1, "id": "7"}, "id"),
        ],
    )
    def test_what_cannot_come_back_is_refused(
        self, queue: Any, arguments: dict[str, Any], named: str
    ) -> None:
        with pytest.raises(ValidationError) as error:
            queue.offer(**arguments)

        assert error.value.name == named
        assert queue.offer("good") == 0

    def test_so_it_is_among_several(self, queue: Any) -> None:
        with pytest.raises(ValidationError, match="does not change"):
            queue.offer_many([1, (1, 2)])

        assert queue.offer("good") == 0

    @pytest.mark.parametrize("values", ["abc", b"abc", {"a": 1}, 7, None])
    def test_several_values_are_not_one_value(self, queue: Any, values: Any) -> None:
        with pytest.raises(ValidationError) as error:
            queue.offer_many(values)

        assert (error.value.name, error.value.value) == ("values", values)


class TestTransactions:
    def test_a_session_in_a_transaction_is_undone_with_it(
        self, queue: Any, shared_store: Store
    ) -> None:
        queue.offer_many(["a", "b"])
        tx = shared_store.begin_transaction()
        tx.queue(queue.name).create_consumer("worker").poll()

        tx.rollback()

        assert queue.create_consumer("worker").poll().value == "a"

    def test_what_it_writes_is_committed_together_with_its_offset(
        self, queue: Any, shared_store: Store
    ) -> None:
        queue.offer_many(["a", "b"])

        with shared_store.transaction() as tx:
            record = tx.queue(queue.name).create_consumer("worker").poll()
            assert record is not None
            tx.write_message(f"invoice-{queue.name}", "Invoiced", {"order": record.value})

        assert queue.create_consumer("worker").poll().value == "b"
        assert shared_store.stream_version(f"invoice-{queue.name}") == 0


class TestEditions:
    def test_queues_work_beside_a_genuine_message_db(
        self, way: Way, new_database: Callable[[str], str]
    ) -> None:
        with way.connect(new_database("beside")) as store:
            queue = store.queue("orders")
            queue.offer_many(["a", "b"])
            queue.offer("c")
            session = queue.create_consumer("worker", CommitMode.MANUAL_COMMIT)

            session.seek(1)
            record = session.poll()
            session.commit()

            assert record is not None
            assert (record.value, session.committed_offset()) == ("b", 2)

    def test_a_genuine_message_db_alone_has_no_consumers(
        self, way: Way, new_database: Callable[[str], str]
    ) -> None:
        with way.connect(new_database("genuine")) as store:
            queue = store.queue("orders")
            queue.offer_many(["a", "b"])

            with pytest.raises(UnsupportedEdition, match="run `penstock init`"):
                queue.create_consumer("worker")
            with pytest.raises(UnsupportedEdition, match="run `penstock init`"):
                queue.commit_offset("worker", 1)

            record = queue.fetch_at(1)
            assert record is not None
            assert record.value == "b"


class TestRoles:
    def test_the_role_message_store_may_use_queues(
        self, way: Way, shared_store: Store, queue: Any
    ) -> None:
        queue.offer("a")
        with way.open_connection(shared_store.settings.conninfo()) as connection:
            connection.execute("set role message_store")
            mine = shared_store.using(connection).queue(queue.name)

            session = mine.create_consumer("worker")

            assert session.poll() is not None
            mine.offer("b")
            session.seek(0)
            mine.commit_offset("worker", 2)

    def test_a_reader_may_not_move_a_consumer(
        self, way: Way, shared_store: Store, queue: Any
    ) -> None:
        queue.offer("a")
        with way.open_connection(shared_store.settings.conninfo(), autocommit=True) as connection:
            connection.execute("set role penstock_reader")
            mine = shared_store.using(connection).queue(queue.name)

            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                mine.create_consumer("worker")

            assert mine.fetch_at(0) is not None


class TestPrimitives:
    def test_fetch_at_returns_the_record_and_moves_nothing(self, queue: Any) -> None:
        queue.offer_many(["a", "b"])

        fetched = [queue.fetch_at(1), queue.fetch_at(1)]

        assert [record.value for record in fetched] == ["b", "b"]
        assert queue.create_consumer("worker").committed_offset() == 0

    def test_fetch_at_returns_none_where_there_is_no_record_yet(self, queue: Any) -> None:
        queue.offer("a")

        assert queue.fetch_at(1) is None

    def test_commit_offset_says_where_the_next_session_goes_on(self, queue: Any) -> None:
        queue.offer_many(["a", "b", "c"])

        queue.commit_offset("worker", 2)
        queue.commit_offset("worker", 2)
        queue.commit_offset("worker", 1)

        session = queue.create_consumer("worker")
        assert session.committed_offset() == 2
        assert session.poll().value == "c"

    def test_commit_offset_stays_within_the_queue(self, queue: Any) -> None:
        queue.offer_many(["a", "b"])

        with pytest.raises(OffsetBeyondTail) as error:
            queue.commit_offset("worker", 3)

        assert (error.value.offset, error.value.tail) == (3, 2)

    def test_an_open_session_stays_where_it_is_and_does_not_undo_it(self, queue: Any) -> None:
        queue.offer_many(["a", "b", "c"])
        session = queue.create_consumer("worker")

        queue.commit_offset("worker", 3)

        assert session.poll().value == "a"
        assert session.committed_offset() == 3
