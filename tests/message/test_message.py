"""Messages: what is checked when one is made, what metadata says, what follows."""

from __future__ import annotations

import dataclasses
import pickle
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Message, RecordedMessage, new_id
from penstock.errors import ValidationError
from penstock.message import as_uuid

ID = UUID("a1b2c3d4-e5f6-4a5b-8c9d-0e1f2a3b4c5d")


def recorded(**fields: Any) -> RecordedMessage:
    facts: dict[str, Any] = {
        "id": ID,
        "stream_name": "account:command-123",
        "type": "Withdraw",
        "position": 4,
        "global_position": 12,
        "data": {"amount": 50},
        "metadata": None,
        "time": datetime(2025, 1, 2, tzinfo=UTC),
    }
    return RecordedMessage(**{**facts, **fields})


class TestNewId:
    def test_is_a_uuid_of_version_7(self) -> None:
        id = new_id()

        assert (id.version, id.variant) == (7, "specified in RFC 4122")

    def test_sorts_by_the_millisecond_it_was_drawn_in(self) -> None:
        ids = [new_id() for _ in range(1000)]

        milliseconds = [id.int >> 80 for id in ids]
        assert milliseconds == sorted(milliseconds)

    def test_is_never_drawn_twice(self) -> None:
        assert len({new_id() for _ in range(10_000)}) == 10_000


class TestAMessage:
    def test_needs_no_more_than_a_type(self) -> None:
        message = Message("Opened")

        assert (message.type, message.data, message.metadata) == ("Opened", None, None)
        assert message.id.version == 7

    def test_takes_an_id_as_text(self) -> None:
        assert Message("Opened", id=str(ID)).id == ID  # type: ignore[arg-type]

    def test_takes_any_mapping(self) -> None:
        data = MappingProxyType({"amount": 50})

        assert Message("Opened", data).data is data

    def test_cannot_be_changed(self) -> None:
        message = Message("Opened")

        with pytest.raises(dataclasses.FrozenInstanceError):
            message.type = "Closed"  # type: ignore[misc]

    def test_gets_metadata_fields_and_keeps_its_id(self) -> None:
        message = Message("Opened", {"owner": "Ada"}, {"trace_id": "t", "user": "ada"})

        changed = message.with_metadata(trace_id="u", schema_version="2")

        assert changed.metadata == {"trace_id": "u", "user": "ada", "schema_version": "2"}
        assert (changed.id, changed.type, changed.data) == (message.id, "Opened", {"owner": "Ada"})
        assert message.metadata == {"trace_id": "t", "user": "ada"}

    def test_travels_between_processes(self) -> None:
        message = Message("Opened", {"owner": "Ada"}, {"trace_id": "t"})

        assert pickle.loads(pickle.dumps(message)) == message


class TestTheConventionsOfMetadata:
    @pytest.mark.parametrize(
        "name",
        ["correlation_id", "causation_id", "reply_stream_name", "schema_version", "trace_id"],
    )
    def test_are_properties_of_both_kinds_of_message(self, name: str) -> None:
        metadata = {name: "abc"}

        assert getattr(Message("Opened", metadata=metadata), name) == "abc"
        assert getattr(recorded(metadata=metadata), name) == "abc"

    @pytest.mark.parametrize("metadata", [None, {}, {"correlation_id": None}])
    def test_are_none_where_they_are_missing(self, metadata: dict[str, Any] | None) -> None:
        assert recorded(metadata=metadata).correlation_id is None

    def test_are_text_whatever_was_stored(self) -> None:
        assert recorded(metadata={"schema_version": 2}).schema_version == "2"

    def test_leave_other_fields_alone(self) -> None:
        metadata = {"anything": {"you": ["like"]}}

        assert Message("Opened", metadata=metadata).metadata == metadata


class TestFollow:
    def test_carries_the_correlation_on_and_names_the_cause(self) -> None:
        command = recorded(
            metadata={
                "correlation_id": "xyz",
                "causation_id": "earlier",
                "reply_stream_name": "withdrawal:reply-abc",
                "trace_id": "t",
                "correlationStreamName": "transfer-1",
                "schema_version": "2",
                "user": "ada",
            }
        )

        event = command.follow("Withdrawn", {"amount": 50})

        assert (event.type, event.data) == ("Withdrawn", {"amount": 50})
        assert event.metadata == {
            "correlation_id": "xyz",
            "causation_id": str(ID),
            "reply_stream_name": "withdrawal:reply-abc",
            "trace_id": "t",
            "correlationStreamName": "transfer-1",
        }

    def test_starts_a_correlation_where_there_is_none(self) -> None:
        event = recorded().follow("Withdrawn")

        assert (event.correlation_id, event.causation_id) == (str(ID), str(ID))

    def test_puts_given_metadata_on_top(self) -> None:
        event = recorded().follow("Withdrawn", metadata={"correlation_id": "mine", "user": "ada"})

        assert (event.correlation_id, event.metadata and event.metadata["user"]) == ("mine", "ada")

    def test_works_from_a_message_that_is_yet_to_be_written(self) -> None:
        first = Message("Opened")

        second = first.follow("Deposited").follow("Withdrawn")

        assert second.correlation_id == str(first.id)
        assert second.causation_id not in (None, str(first.id))

    def test_draws_an_id_or_takes_one(self) -> None:
        assert recorded().follow("Withdrawn").id.version == 7
        assert recorded().follow("Withdrawn", id=str(ID)).id == ID

    @pytest.mark.parametrize("metadata", [["a"], "text", 5, {1: 2}])
    def test_refuses_metadata_that_is_no_object(self, metadata: Any) -> None:
        with pytest.raises(ValidationError, match="metadata"):
            recorded().follow("Withdrawn", metadata=metadata)


class TestARecordedMessage:
    def test_knows_its_category(self) -> None:
        assert recorded().category == "account:command"

    def test_cannot_be_changed(self) -> None:
        with pytest.raises(AttributeError):
            recorded().type = "Closed"  # type: ignore[misc]

    def test_is_equal_to_one_with_the_same_facts(self) -> None:
        assert recorded() == recorded()
        assert recorded() != recorded(position=5)

    def test_travels_between_processes(self) -> None:
        assert pickle.loads(pickle.dumps(recorded())) == recorded()


NOT_UUIDS = [
    "",
    "not a uuid",
    "a1b2c3d4e5f64a5b8c9d0e1f2a3b4c5d",
    "a1b2c3d4e5f64a5b8c9d0e1f2a3b4c5d----",
    "a1b2c3d4-e5f6-4a5b-8c9d-0e1f2a3b4c5",
    "a1b2c3d4-e5f6-4a5b-8c9d-0e1f2a3b4c5g",
    "a1b2-c3d4e5f6-4a5b-8c9d-0e1f2a3b4c5d",
    "{a1b2c3d4-e5f6-4a5b-8c9d0e1f2a3b4c5d}",
    "urn:uuid:a1b2c3d4-e5f6-4a5b-8c9d-0e1f2a3b4c5d",
    "１1b2c3d4-e5f6-4a5b-8c9d-0e1f2a3b4c5d",
    12,
    b"a1b2c3d4-e5f6-4a5b-8c9d-0e1f2a3b4c5d",
    None,
]


class TestAnId:
    @pytest.mark.parametrize("value", NOT_UUIDS)
    def test_that_is_no_uuid_in_standard_form_is_refused_by_its_value(self, value: object) -> None:
        with pytest.raises(ValidationError, match="a UUID such as") as caught:
            as_uuid(value)

        assert (caught.value.name, caught.value.value) == ("id", value)
        assert repr(value) in str(caught.value)

    @given(st.uuids())
    def test_in_standard_form_is_taken_in_either_case(self, id: UUID) -> None:
        assert as_uuid(id) is id
        assert as_uuid(str(id)) == as_uuid(str(id).upper()) == id


@pytest.mark.parametrize("type", ["", None, 5, b"Opened", "Ope\0ned", "Ope\ud800ned"])
def test_a_type_that_is_no_text_is_refused_by_its_value(type: Any) -> None:
    with pytest.raises(ValidationError, match=r"^type must be") as caught:
        Message(type)

    assert caught.value.value == type


@pytest.mark.parametrize("field", ["data", "metadata"])
@pytest.mark.parametrize("value", [[], [1], 5, 0, "text", "", True, False, {1: 2}, {None: 1}])
def test_data_that_is_no_object_is_refused_by_its_value(field: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=f"^{field}"):
        Message("Opened", **{field: value})
