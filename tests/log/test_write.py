"""Writing: positions, ids that may be repeated, expected versions, several messages at once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from uuid import UUID

import psycopg
import pytest

import penstock
from penstock import Edition, Message, Store, Transaction, WrongExpectedVersion
from penstock.errors import DuplicateMessageId
from penstock.log import write
from tests.racing import at_once, wait_until_blocked, wait_until_it_waits

ID = UUID("a1b2c3d4-e5f6-4a5b-8c9d-0e1f2a3b4c5d")
OTHER_ID = UUID("b1b2c3d4-e5f6-4a5b-8c9d-0e1f2a3b4c5d")


class TestPositions:
    def test_count_from_0_in_each_stream(self, any_store: Store) -> None:
        first = [any_store.write_message("account-1", "Opened") for _ in range(3)]
        second = [any_store.write_message("account-2", "Opened") for _ in range(2)]

        assert (first, second) == ([0, 1, 2], [0, 1])

    def test_a_category_is_a_stream_too(self, any_store: Store) -> None:
        positions = [any_store.write_message("account", "Audited") for _ in range(2)]

        assert positions == [0, 1]
        assert any_store.stream_version("account") == 1

    def test_stream_names_are_case_sensitive(self, any_store: Store) -> None:
        any_store.write_message("account-1", "Opened")

        assert any_store.write_message("Account-1", "Opened") == 0

    def test_a_name_may_hold_any_character_but_nul(self, any_store: Store) -> None:
        name = "täg:ß+ζ-'; drop table messages; --😀 %s"

        any_store.write_message(name, "Öpened")

        (message,) = any_store.get_stream_messages(name)
        assert (message.stream_name, message.type) == (name, "Öpened")

    def test_use_all_of_64_bits(self, any_store: Store) -> None:
        high = 2**62
        with psycopg.connect(any_store.settings.conninfo()) as connection:
            connection.execute(
                "select setval('message_store.messages_global_position_seq', %s)", [high]
            )
            connection.execute(
                "insert into message_store.messages (stream_name, type, position)"
                " values ('account-1', 'Opened', %s)",
                [high],
            )

        position = any_store.write_message("account-1", "Closed", expected_version=high)

        last = any_store.get_category_messages("account", high)[-1]
        assert (position, last.position, last.global_position) == (high + 1, high + 1, high + 2)


class TestContent:
    def test_comes_back_as_it_was_written(self, any_store: Store) -> None:
        data = {"amount": 50, "currency": "USD", "nested": {"list": [1, 2.5, None, True, "ü"]}}
        metadata = {"correlation_id": "xyz-789", "free": {"as": "you like"}}

        any_store.write_message("account-1", "Withdrawn", data, metadata, id=ID)

        (message,) = any_store.get_stream_messages("account-1")
        assert (message.id, message.type) == (ID, "Withdrawn")
        assert (message.data, message.metadata) == (data, metadata)

    def test_no_data_is_an_empty_object_and_no_metadata_is_none(self, any_store: Store) -> None:
        any_store.write_message("account-1", "Opened")

        (message,) = any_store.get_stream_messages("account-1")
        assert (message.data, message.metadata) == ({}, None)

    def test_a_null_is_not_a_missing_field(self, any_store: Store) -> None:
        any_store.write_message("account-1", "Opened", {"given": None}, {})

        (message,) = any_store.get_stream_messages("account-1")
        assert (message.data, message.metadata) == ({"given": None}, {})


def write_one(log: Store | Transaction, message: Message) -> list[int]:
    return [log.write_message("account-1", message)]


def write_several(log: Store | Transaction, message: Message) -> list[int]:
    return log.write_messages("account-1", [message])


def write_to_many(log: Store | Transaction, message: Message) -> list[int]:
    return log.write_many([("account-1", message)])


class TestIds:
    @pytest.mark.parametrize("way", [write_one, write_several, write_to_many])
    def test_a_retry_while_the_first_write_is_under_way_returns_the_first_position(
        self, any_store: Store, way: Callable[[Store | Transaction, Message], list[int]]
    ) -> None:
        message = Message("Opened")
        with ThreadPoolExecutor(1) as threads, any_store.transaction() as first:
            written = way(first, message)
            again = threads.submit(way, any_store, message)
            wait_until_it_waits(any_store.settings.conninfo(), again)
            first.commit()

        assert again.result() == written == [0]

    @pytest.mark.parametrize("id", [ID, str(ID), str(ID).upper()])
    def test_may_be_a_uuid_or_its_text_in_either_case(self, store: Store, id: UUID | str) -> None:
        store.write_message("account-1", "Opened", id=id)

        (message,) = store.get_stream_messages("account-1")
        assert message.id == ID

    def test_are_drawn_when_not_given_and_rise_with_time(self, any_store: Store) -> None:
        for _ in range(3):
            any_store.write_message("account-1", "Opened")

        ids = [message.id for message in any_store.get_stream_messages("account-1")]
        assert len(set(ids)) == 3
        assert {id.version for id in ids} == {7}

    def test_a_retry_of_a_successful_write_returns_the_first_position(
        self, any_store: Store
    ) -> None:
        first = any_store.write_message("account-1", "Opened", id=ID, expected_version=-1)
        any_store.write_message("account-1", "Closed")

        again = any_store.write_message("account-1", "Opened", id=ID, expected_version=-1)

        assert again == first == 0
        assert any_store.stream_version("account-1") == 1

    def test_a_retry_changes_nothing_of_the_first_message(self, any_store: Store) -> None:
        any_store.write_message("account-1", "Opened", {"owner": "Ada"}, id=ID)

        any_store.write_message("account-1", "Renamed", {"owner": "Bob"}, id=ID)

        (message,) = any_store.get_stream_messages("account-1")
        assert (message.type, message.data) == ("Opened", {"owner": "Ada"})

    def test_an_id_of_another_stream_is_refused(self, any_store: Store) -> None:
        any_store.write_message("account-1", "Opened", id=ID)

        with pytest.raises(DuplicateMessageId, match=str(ID)) as caught:
            any_store.write_message("account-2", "Opened", id=ID)

        assert str(caught.value.id) == str(ID)
        assert any_store.stream_version("account-2") is None

    def test_the_error_names_the_stream_that_has_the_id(self, store: Store) -> None:
        store.write_message("account-1", "Opened", id=ID)

        with pytest.raises(DuplicateMessageId) as caught:
            store.write_message("account-2", "Opened", id=ID)

        assert caught.value.stream_name == "account-1"

    def test_writers_that_race_with_one_id_write_one_message(self, any_store: Store) -> None:
        one = partial(any_store.write_message, "account-1", "Opened", id=ID)

        positions = at_once(*[one] * 6)

        assert positions == [0] * 6
        assert any_store.stream_version("account-1") == 0

    def test_a_retry_that_waits_for_the_first_write_returns_its_position(
        self, any_store: Store
    ) -> None:
        retry = partial(any_store.write_message, "account-1", "Opened", id=ID, expected_version=-1)
        with any_store.transaction() as first:
            first.write_message("account-1", "Opened", id=ID, expected_version=-1)

            def commit_once_the_other_waits() -> None:
                wait_until_blocked(any_store.settings.conninfo())
                first.commit()

            outcome, _ = at_once(retry, commit_once_the_other_waits)

        assert outcome == 0
        assert any_store.stream_version("account-1") == 0

    def test_writers_that_race_with_one_id_for_two_streams_have_one_winner(
        self, any_store: Store
    ) -> None:
        names = [f"account-{number}" for number in range(4)]

        outcomes = at_once(*[partial(any_store.write_message, n, "Opened", id=ID) for n in names])

        assert outcomes.count(0) == 1
        assert sum(isinstance(outcome, DuplicateMessageId) for outcome in outcomes) == 3
        assert len(any_store.get_category_messages("account")) == 1


class TestExpectedVersion:
    def test_that_is_right_lets_the_write_through(self, any_store: Store) -> None:
        versions = [-1, 0, 1]

        written = [
            any_store.write_message("account-1", "Opened", expected_version=v) for v in versions
        ]

        assert written == [0, 1, 2]

    @pytest.mark.parametrize("wrong", [-1, 0, 2, 2**63 - 1])
    def test_that_is_wrong_writes_nothing_and_tells_both_versions(
        self, any_store: Store, wrong: int
    ) -> None:
        any_store.write_message("account-1", "Opened")
        any_store.write_message("account-1", "Closed")

        with pytest.raises(WrongExpectedVersion) as caught:
            any_store.write_message("account-1", "Opened", expected_version=wrong)

        error = caught.value
        assert (error.stream_name, error.expected, error.actual) == ("account-1", wrong, 1)
        assert error.retryable
        assert any_store.stream_version("account-1") == 1

    def test_of_a_stream_without_messages_is_minus_1(self, any_store: Store) -> None:
        with pytest.raises(WrongExpectedVersion) as caught:
            any_store.write_message("account-1", "Opened", expected_version=0)

        assert caught.value.actual == -1

    def test_is_reported_rightly_for_an_awkward_stream_name(self, any_store: Store) -> None:
        name = "odd:name-(Stream: x, Stream Version: 7)\nnext"

        with pytest.raises(WrongExpectedVersion) as caught:
            any_store.write_message(name, "Opened", expected_version=3)

        assert (caught.value.stream_name, caught.value.expected) == (name, 3)

    def test_writers_that_race_for_one_version_have_one_winner(self, any_store: Store) -> None:
        any_store.write_message("account-1", "Opened")
        one = partial(any_store.write_message, "account-1", "Withdrawn", expected_version=0)

        outcomes = at_once(*[one] * 6)

        assert outcomes.count(1) == 1
        assert sum(isinstance(outcome, WrongExpectedVersion) for outcome in outcomes) == 5

    def test_is_checked_against_what_a_waiting_writer_finds_in_the_end(
        self, any_store: Store
    ) -> None:
        late = partial(any_store.write_message, "account-1", "Opened", expected_version=-1)
        with any_store.transaction() as ahead:
            ahead.write_message("account-1", "Opened")

            def commit_once_the_other_waits() -> None:
                wait_until_blocked(any_store.settings.conninfo())
                ahead.commit()

            outcome, _ = at_once(late, commit_once_the_other_waits)

        assert isinstance(outcome, WrongExpectedVersion)
        assert outcome.actual == 0


class TestSeveralMessages:
    def test_get_positions_in_their_order(self, any_store: Store) -> None:
        any_store.write_message("account-1", "Opened")

        positions = any_store.write_messages(
            "account-1", (Message("Deposited", {"amount": n}) for n in range(5))
        )

        amounts = [m.data["amount"] for m in any_store.get_stream_messages("account-1", 1)]
        assert (positions, amounts) == ([1, 2, 3, 4, 5], [0, 1, 2, 3, 4])

    def test_come_back_as_they_were_written(self, any_store: Store) -> None:
        messages = [
            Message("Opened", {"a": 1}, {"b": None}, id=ID),
            Message("Closed", {"nested": [{"ü": 1}]}, id=OTHER_ID),
            Message("Audited", metadata={}),
        ]

        any_store.write_messages("account-1", messages)

        assert [
            (m.id, m.type, m.data, m.metadata) for m in any_store.get_stream_messages("account-1")
        ] == [(m.id, m.type, m.data or {}, m.metadata) for m in messages]

    def test_are_one_statement_however_many_they_are(self, store: Store) -> None:
        thousand = [Message("Deposited") for _ in range(1000)]

        operation = write.write_messages(store.context, "account-1", thousand)

        assert len(operation.statements) == 1
        assert store.run(operation) == list(range(1000))

    def test_with_the_right_expected_version_are_written(self, any_store: Store) -> None:
        one, two = Message("Opened"), Message("Closed")

        first = any_store.write_messages("account-1", [one], expected_version=-1)
        second = any_store.write_messages(
            "account-1", [two, Message("Audited")], expected_version=0
        )

        assert (first, second) == ([0], [1, 2])

    def test_with_a_wrong_expected_version_are_none_of_them_written(self, any_store: Store) -> None:
        any_store.write_message("account-1", "Opened")

        with pytest.raises(WrongExpectedVersion) as caught:
            any_store.write_messages("account-1", [Message("A"), Message("B")], expected_version=5)

        assert (caught.value.expected, caught.value.actual) == (5, 0)
        assert any_store.stream_version("account-1") == 0

    @pytest.mark.parametrize("expected_version", [None, -1])
    def test_written_again_return_the_first_positions(
        self, any_store: Store, expected_version: int | None
    ) -> None:
        messages = [Message("Opened"), Message("Deposited")]
        first = any_store.write_messages("account-1", messages, expected_version=-1)
        any_store.write_message("account-1", "Closed")

        again = any_store.write_messages("account-1", messages, expected_version=expected_version)

        assert again == first == [0, 1]
        assert any_store.stream_version("account-1") == 2

    @pytest.mark.parametrize("known", [0, 1, 2])
    def test_of_which_one_exists_already_are_none_of_them_written(
        self, any_store: Store, known: int
    ) -> None:
        messages = [Message("A"), Message("B"), Message("C")]
        any_store.write_message("account-1", "B", id=messages[known].id)

        with pytest.raises(DuplicateMessageId, match=str(messages[known].id)):
            any_store.write_messages("account-1", messages)

        assert any_store.stream_version("account-1") == 0

    def test_whose_ids_stand_in_another_stream_are_refused(self, any_store: Store) -> None:
        messages = [Message("A"), Message("B")]
        any_store.write_messages("account-1", messages)

        with pytest.raises(DuplicateMessageId):
            any_store.write_messages("account-2", messages)

        assert any_store.stream_version("account-2") is None

    def test_keep_the_log_whole_when_batches_race(self, any_store: Store) -> None:
        def batch() -> list[int]:
            return any_store.write_messages("account-1", [Message("A") for _ in range(20)])

        batches = at_once(*[batch] * 4)

        positions = [position for one in batches for position in one]  # type: ignore[union-attr]
        assert sorted(positions) == list(range(80))
        assert all(one == list(range(one[0], one[0] + 20)) for one in batches)  # type: ignore[index]


class TestWritersSideBySide:
    def test_to_one_stream_take_turns(self, any_store: Store) -> None:
        positions = at_once(*[partial(any_store.write_message, "account-1", "Deposited")] * 8)

        assert sorted(positions) == list(range(8))  # type: ignore[type-var]

    def test_to_two_streams_of_a_category_do_not_wait_for_each_other(self, store: Store) -> None:
        with store.transaction() as open_one, store.transaction() as other:
            open_one.write_message("account-1", "Opened")
            other.connection.execute("set local lock_timeout = '2s'")

            position = other.write_message("account-2", "Opened")

        assert position == 0


def test_an_interrupted_batch_leaves_the_connection_usable(
    new_database: Callable[[str], str],
) -> None:
    with penstock.connect(new_database("beside"), pool_max_size=1) as store:
        store.write_message("account-1", "Opened", id=ID)

        for _ in range(3):
            with pytest.raises(DuplicateMessageId):
                store.write_messages("account-2", [Message("A"), Message("B", id=ID)])

        assert store.context.edition is Edition.ON_MESSAGE_DB
        assert store.write_message("account-2", "Opened") == 0
