"""Reading: a stream, a category, a group member's share, the end of a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

import penstock
from penstock import JsonSerializer, Message, RecordedMessage, Store
from penstock.errors import (
    ConditionNotActivated,
    DecodingError,
    UnsupportedEdition,
    ValidationError,
)
from penstock.message import names


def streams_of(messages: list[RecordedMessage]) -> list[str]:
    return [message.stream_name for message in messages]


def types_of(messages: list[RecordedMessage]) -> list[str]:
    return [message.type for message in messages]


def insert(store: Store, **columns: object) -> None:
    """Put a row into the log past every function."""
    row = {"stream_name": "account-1", "type": "Opened", "position": 0, **columns}
    names = ", ".join(row)
    values = ", ".join(f"%({name})s" for name in row)
    with psycopg.connect(store.settings.conninfo()) as connection:
        statement = f"insert into message_store.messages ({names}) values ({values})"
        connection.execute(statement.encode(), row)


@pytest.fixture
def accounts(any_store: Store) -> Store:
    """Three account streams written in turns, and neighbours that are not accounts."""
    for type in ("Opened", "Deposited", "Withdrawn"):
        for number in (1, 2, 3):
            any_store.write_message(f"account-{number}", type)
            any_store.write_message(f"account:command-{number}", type)
    any_store.write_message("accounting-1", "Audited")
    return any_store


class TestAStream:
    def test_is_read_in_the_order_of_its_positions(self, accounts: Store) -> None:
        messages = accounts.get_stream_messages("account-2")

        assert types_of(messages) == ["Opened", "Deposited", "Withdrawn"]
        assert [message.position for message in messages] == [0, 1, 2]
        assert set(streams_of(messages)) == {"account-2"}

    def test_is_read_from_a_position_inclusively(self, accounts: Store) -> None:
        messages = accounts.get_stream_messages("account-2", 1)

        assert [message.position for message in messages] == [1, 2]

    def test_is_read_up_to_the_batch_size(self, accounts: Store) -> None:
        messages = accounts.get_stream_messages("account-2", 0, 2)

        assert [message.position for message in messages] == [0, 1]

    @pytest.mark.parametrize("name", ["account-2", "account-9"])
    def test_past_its_end_is_empty(self, accounts: Store, name: str) -> None:
        assert accounts.get_stream_messages(name, 3) == []
        assert accounts.get_stream_messages(name, 2**63 - 1) == []

    def test_is_named_by_its_whole_name(self, accounts: Store) -> None:
        with pytest.raises(ValidationError, match="get_category_messages"):
            accounts.get_stream_messages("account")


class TestACategory:
    def test_is_read_in_the_order_of_the_log(self, accounts: Store) -> None:
        messages = accounts.get_category_messages("account")

        assert streams_of(messages) == ["account-1", "account-2", "account-3"] * 3
        positions = [message.global_position for message in messages]
        assert positions == sorted(positions)

    def test_with_a_type_is_another_category(self, accounts: Store) -> None:
        messages = accounts.get_category_messages("account:command")

        assert set(streams_of(messages)) == {f"account:command-{number}" for number in (1, 2, 3)}

    def test_includes_the_stream_of_its_own_name(self, accounts: Store) -> None:
        accounts.write_message("account", "Closed")

        assert types_of(accounts.get_category_messages("account"))[-1] == "Closed"

    def test_is_read_from_a_global_position_inclusively(self, accounts: Store) -> None:
        third = accounts.get_category_messages("account")[2]

        messages = accounts.get_category_messages("account", third.global_position)

        assert messages[0] == third
        assert len(messages) == 7

    def test_is_read_up_to_the_batch_size(self, accounts: Store) -> None:
        messages = accounts.get_category_messages("account", 1, 4)

        assert streams_of(messages) == ["account-1", "account-2", "account-3", "account-1"]

    def test_without_messages_is_empty(self, accounts: Store) -> None:
        assert accounts.get_category_messages("nothing") == []
        assert accounts.get_category_messages("account", 2**63 - 1) == []

    def test_is_named_without_an_id(self, accounts: Store) -> None:
        with pytest.raises(ValidationError, match="account-1"):
            accounts.get_category_messages("account-1")

    def test_starts_at_global_position_1(self, any_store: Store) -> None:
        any_store.write_message("account-1", "Opened")

        (message,) = any_store.get_category_messages("account")

        assert message.global_position == 1


class TestTheWholeLog:
    def test_is_the_category_all(self, store: Store) -> None:
        names = ["b-1", "a-1", "c", "a:command-1"]
        for name in names:
            store.write_message(name, "Written")

        assert streams_of(store.get_category_messages("$all")) == names
        assert streams_of(store.get_category_messages("$all", 2, 2)) == ["a-1", "c"]

    def test_can_be_shared_out_to_a_group(self, store: Store) -> None:
        for number in range(10):
            store.write_message(f"{'ab'[number % 2]}-{number}", "Written")

        shares = [
            store.get_category_messages("$all", consumer_group_member=member, consumer_group_size=2)
            for member in (0, 1)
        ]

        assert sorted(m.global_position for share in shares for m in share) == list(range(1, 11))

    def test_is_more_than_a_genuine_message_db_can_read(
        self, new_database: Callable[[str], str]
    ) -> None:
        with (
            penstock.connect(new_database("genuine")) as store,
            pytest.raises(UnsupportedEdition, match="penstock init"),
        ):
            store.get_category_messages("$all")

    def test_does_not_go_past_a_message_that_is_still_being_committed(self, store: Store) -> None:
        store.write_message("early-1", "Written")
        with store.transaction() as late:
            late.write_message("late-1", "Written")
            store.write_message("early-2", "Written")
            before = streams_of(store.get_category_messages("$all"))

        after = streams_of(store.get_category_messages("$all"))

        assert (before, after) == (["early-1"], ["early-1", "late-1", "early-2"])


class TestBatchSize:
    def test_is_1000_by_default(self, any_store: Store) -> None:
        any_store.write_messages("account-1", [Message("Deposited") for _ in range(1001)])

        assert len(any_store.get_stream_messages("account-1")) == 1000
        assert len(any_store.get_category_messages("account")) == 1000

    def test_of_minus_1_means_everything(self, any_store: Store) -> None:
        any_store.write_messages("account-1", [Message("Deposited") for _ in range(1001)])

        assert len(any_store.get_stream_messages("account-1", 0, -1)) == 1001
        assert len(any_store.get_category_messages("account", 1, -1)) == 1001

    def test_has_the_default_of_the_settings(self, database_url: str) -> None:
        with penstock.connect(database_url, default_batch_size=2) as store:
            store.write_messages("account-1", [Message("Deposited") for _ in range(5)])

            assert len(store.get_stream_messages("account-1")) == 2
            assert len(store.get_category_messages("account")) == 2


class TestAGroup:
    @pytest.mark.parametrize("size", [1, 2, 3])
    def test_reads_each_message_at_exactly_one_member(self, any_store: Store, size: int) -> None:
        for number in range(12):
            any_store.write_message(f"account-{number}", "Opened")
            any_store.write_message(f"account-{number}+{number}", "Opened")

        shares = [
            any_store.get_category_messages(
                "account", consumer_group_member=member, consumer_group_size=size
            )
            for member in range(size)
        ]

        read = [message.global_position for share in shares for message in share]
        assert sorted(read) == list(range(1, 25))

    def test_gives_a_stream_to_the_member_that_its_name_says(self, any_store: Store) -> None:
        for number in range(12):
            any_store.write_message(f"account-{number}-x+{number}", "Opened")

        for member in range(3):
            share = any_store.get_category_messages(
                "account", consumer_group_member=member, consumer_group_size=3
            )
            assert {names.group_member(m.stream_name, 3) for m in share} <= {member}

    def test_leaves_out_streams_without_an_id(self, any_store: Store) -> None:
        any_store.write_message("account", "Opened")

        share = any_store.get_category_messages(
            "account", consumer_group_member=0, consumer_group_size=1
        )

        assert share == []

    def test_counts_the_batch_after_sharing_out(self, any_store: Store) -> None:
        for number in range(12):
            any_store.write_message(f"account-{number}", "Opened")
        expected = [f"account-{n}" for n in range(12) if names.group_member(f"account-{n}", 2) == 1]

        share = any_store.get_category_messages(
            "account", 1, 2, consumer_group_member=1, consumer_group_size=2
        )

        assert streams_of(share) == expected[:2]


class TestTheLastMessage:
    def test_is_the_one_with_the_highest_position(self, accounts: Store) -> None:
        message = accounts.get_last_stream_message("account-2")

        assert message is not None
        assert (message.stream_name, message.type, message.position) == (
            "account-2",
            "Withdrawn",
            2,
        )

    def test_can_be_the_last_of_a_type(self, accounts: Store) -> None:
        message = accounts.get_last_stream_message("account-2", "Deposited")

        assert message is not None
        assert (message.type, message.position) == ("Deposited", 1)

    @pytest.mark.parametrize(("name", "type"), [("account-9", None), ("account-2", "Closed")])
    def test_is_none_where_there_is_none(
        self, accounts: Store, name: str, type: str | None
    ) -> None:
        assert accounts.get_last_stream_message(name, type) is None

    def test_of_a_category_stream_is_of_that_stream_alone(self, accounts: Store) -> None:
        assert accounts.get_last_stream_message("account") is None

        accounts.write_message("account", "Audited")

        message = accounts.get_last_stream_message("account")
        assert message is not None
        assert message.type == "Audited"


class TestTheStreamVersion:
    def test_is_the_position_of_the_last_message(self, accounts: Store) -> None:
        assert accounts.stream_version("account-2") == 2
        assert accounts.stream_version("accounting-1") == 0

    def test_is_none_for_a_stream_without_messages(self, accounts: Store) -> None:
        assert accounts.stream_version("account-9") is None
        assert accounts.stream_version("account") is None


class TestTheHeadOfACategory:
    def test_is_its_last_global_position(self, store: Store) -> None:
        for name in ("account-1", "account-2", "order-1"):
            store.write_message(name, "Written")

        heads = [store.category_head(name) for name in ("account", "order", "$all", "nothing")]

        assert heads == [2, 3, 3, 0]

    def test_waits_for_messages_that_are_still_being_committed(self, store: Store) -> None:
        store.write_message("account-1", "Written")
        with store.transaction() as late:
            late.write_message("account-2", "Written")
            store.write_message("account-3", "Written")

            assert store.category_head("account") == 1

        assert store.category_head("account") == 3

    def test_needs_penstock(self, new_database: Callable[[str], str]) -> None:
        with (
            penstock.connect(new_database("genuine")) as store,
            pytest.raises(UnsupportedEdition, match="penstock init"),
        ):
            store.category_head("account")


class Recursive(JsonSerializer):
    """Decodes as deep as Python's own limit lets it: how deep msgspec may go, versions differ."""

    def decode(self, type: str, text: str) -> dict[str, Any]:
        return {"depth": self._depth(text)}

    def _depth(self, text: str) -> int:
        return 1 + self._depth(text.partition("[")[2]) if "[" in text else 0


class TestARecordedMessage:
    def test_has_the_time_of_the_database_in_utc(self, any_store: Store) -> None:
        any_store.write_message("account-1", "Opened")

        with psycopg.connect(any_store.settings.conninfo()) as connection:
            row = connection.execute("select time from message_store.messages").fetchone()
        (message,) = any_store.get_stream_messages("account-1")
        assert row is not None
        assert message.time == row[0].replace(tzinfo=UTC)
        assert message.time.utcoffset() == timedelta(0)

    def test_has_the_time_to_the_microsecond(self, any_store: Store) -> None:
        insert(any_store, time="2025-01-02 03:04:05.678901")

        (message,) = any_store.get_stream_messages("account-1")

        assert message.time == datetime(2025, 1, 2, 3, 4, 5, 678901, UTC)

    @pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"])
    def test_has_the_same_time_in_a_session_of_any_time_zone(
        self, new_database: Callable[[str], str], zone: str
    ) -> None:
        url = new_database("penstock")
        with penstock.connect(url) as here, penstock.connect(url, session_timezone=zone) as there:
            there.write_message("account-1", "Opened")

            assert here.get_stream_messages("account-1") == there.get_stream_messages("account-1")

    def test_knows_its_category(self, any_store: Store) -> None:
        any_store.write_message("account:command-1", "Open")

        (message,) = any_store.get_category_messages("account:command")

        assert message.category == "account:command"

    def test_reads_null_data_as_an_empty_object(self, any_store: Store) -> None:
        insert(any_store, data=None)

        (message,) = any_store.get_stream_messages("account-1")

        assert (message.data, message.metadata) == ({}, None)

    @pytest.mark.parametrize("data", [[1, 2], 5, "text", None])
    def test_that_is_no_object_is_named_by_the_error(self, any_store: Store, data: object) -> None:
        any_store.write_message("account-1", "Opened")
        insert(any_store, position=1, data=Jsonb(data))

        with pytest.raises(DecodingError) as caught:
            any_store.get_category_messages("account")

        error = caught.value
        assert (error.stream_name, error.position, error.global_position) == ("account-1", 1, 2)
        assert any_store.write_message("account-1", "Closed") == 2

    def test_that_goes_too_deep_is_named_by_the_error(self, any_store: Store) -> None:
        nested = "[" * 3000 + "]" * 3000
        insert(any_store, data=Jsonb(nested, dumps=lambda text: f'{{"a": {text}}}'))

        with (
            penstock.connect(any_store.settings, serializer=Recursive()) as store,
            pytest.raises(DecodingError, match="depth"),
        ):
            store.get_category_messages("account")


class TestAnSqlCondition:
    @pytest.fixture(params=["penstock", "beside", "genuine"])
    def open_store(
        self, request: pytest.FixtureRequest, new_database: Callable[[str], str]
    ) -> Iterator[Store]:
        with penstock.connect(new_database(request.param), sql_condition=True) as store:
            metadata = {"correlation_id": "abc-123"}
            store.write_message("account-1", "Deposited", {"amount": 50})
            store.write_message("account-1", "Withdrawn", {"amount": 60}, metadata)
            store.write_message("account-1", "Withdrawn", {"amount": 150})
            store.write_message("account-1", "Closed")
            yield store

    @pytest.mark.parametrize(
        ("condition", "positions"),
        [
            ("type = 'Withdrawn'", [1, 2]),
            ("type IN ('Deposited', 'Withdrawn')", [0, 1, 2]),
            ("metadata->>'correlation_id' = 'abc-123'", [1]),
            ("time > '2025-01-01 00:00:00'::timestamp", [0, 1, 2, 3]),
            ("type = 'Withdrawn' AND (data->>'amount')::numeric > 100", [2]),
            ("type = 'Closed' OR type = 'Deposited'", [0, 3]),
            ("type like 'With%'", [1, 2]),
        ],
    )
    def test_filters_what_is_read(
        self, open_store: Store, condition: str, positions: list[int]
    ) -> None:
        of_stream = open_store.get_stream_messages("account-1", condition=condition)
        of_category = open_store.get_category_messages("account", condition=condition)

        assert [message.position for message in of_stream] == positions
        assert of_category == of_stream

    def test_stays_within_the_stream_the_position_and_the_batch(self, open_store: Store) -> None:
        open_store.write_message("account-2", "Closed")

        (message,) = open_store.get_stream_messages("account-1", 1, 1, "true or true")

        assert (message.stream_name, message.position) == ("account-1", 1)

    def test_goes_with_a_group_and_a_correlation(self, open_store: Store) -> None:
        messages = open_store.get_category_messages(
            "account",
            correlation="transfer",
            consumer_group_member=0,
            consumer_group_size=1,
            condition="true",
        )

        assert messages == []

    def test_that_is_no_sql_fails_and_leaves_the_store_usable(self, open_store: Store) -> None:
        with pytest.raises(psycopg.errors.SyntaxError):
            open_store.get_stream_messages("account-1", condition="type = ")

        assert open_store.stream_version("account-1") == 3

    def test_is_refused_unless_switched_on(self, any_store: Store) -> None:
        for read in (any_store.get_stream_messages, any_store.get_category_messages):
            name = "account-1" if read == any_store.get_stream_messages else "account"
            with pytest.raises(ConditionNotActivated, match="sql_condition=True") as caught:
                read(name, condition="type = 'Opened'")
            assert caught.value.condition == "type = 'Opened'"

    def test_is_refused_by_the_server_too(self, any_store: Store) -> None:
        read = "select * from message_store.get_category_messages('account', condition => 'true')"

        with (
            pytest.raises(psycopg.Error, match="Retrieval with SQL condition is not activated"),
            any_store.transaction() as transaction,
        ):
            transaction.connection.execute(read.encode())


def test_the_version_is_that_of_message_db(any_store: Store) -> None:
    assert any_store.message_store_version() == "1.3.0"
