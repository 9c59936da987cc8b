"""Typed messages: validated, immutable, found by type, brought up to date as they are read."""

from __future__ import annotations

import enum
import inspect
import json
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, Final, Literal, NewType
from uuid import UUID

import msgspec
import pytest

import penstock
from penstock import Message, QueryCondition, Store, TypedMessage, typed
from penstock.errors import DecodingError, UnknownMessageType, ValidationError


class Colour(enum.Enum):
    RED = "red"


class Size(enum.StrEnum):
    LARGE = "large"


class OrderPlaced(TypedMessage, type="typed.order_placed", unindexed=["note"]):
    order_id: str
    quantity: int = 1
    note: str | None = None
    lines: list[str] = field(default_factory=list)


class OrderMoved(
    TypedMessage,
    type="typed.order_moved",
    schema_version="3",
    upcasters={
        None: lambda data: {"order": data["id"]},
        "2": lambda data: {"order_id": data["order"], "place": "unknown"},
    },
):
    order_id: str
    place: str


def write(store: Store, message: Message | TypedMessage) -> Any:
    """Write a message and read it back as its class."""
    store.write_message("order-1", message)
    recorded = store.get_last_stream_message("order-1")
    assert recorded is not None
    return typed(recorded)


def test_a_message_has_its_values_and_its_defaults() -> None:
    placed = OrderPlaced(order_id="1")

    assert (placed.order_id, placed.quantity, placed.note, placed.lines) == ("1", 1, None, [])
    assert placed.message_type == "typed.order_placed"


def test_names_are_fixed_at_definition() -> None:
    assert OrderPlaced.payload_attribute_names == ("order_id", "quantity", "note", "lines")
    assert OrderPlaced.indexed_attribute_names == ("order_id", "quantity")


@pytest.mark.parametrize(
    "values",
    [
        {"order_id": 1},
        {"order_id": None},
        {"order_id": "1", "quantity": "2"},
        {"order_id": "1", "quantity": 1.5},
        {"order_id": "1", "lines": "not a list"},
        {"order_id": "1", "lines": [1]},
    ],
)
def test_a_wrong_value_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="OrderPlaced"):
        OrderPlaced(**values)


def test_a_missing_or_unknown_attribute_is_refused() -> None:
    with pytest.raises(ValidationError, match="OrderPlaced must be given order_id"):
        OrderPlaced()  # type: ignore[call-arg]
    with pytest.raises(ValidationError, match="OrderPlaced must be without colour"):
        OrderPlaced(order_id="1", colour="red")  # type: ignore[call-arg]


def test_a_class_may_check_values_against_each_other_but_not_those_of_the_past(
    store: Store,
) -> None:
    class Moved(TypedMessage, type="typed.moved_forward"):
        start: int
        end: int

        def __post_init__(self) -> None:
            if self.end < self.start:
                raise ValidationError("end", self.end, f"at least {self.start}")

    assert Moved(start=1, end=2).message_id is not None
    with pytest.raises(ValidationError, match="Expected `int`"):
        Moved(start="1", end=2)  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="end must be at least 2"):
        Moved(start=2, end=1)

    assert write(store, Message("typed.moved_forward", {"start": 2, "end": 1})).end == 1


def test_a_default_that_does_not_fit_is_refused_at_definition() -> None:
    with pytest.raises(ValidationError, match=r"the default of Wrong\.quantity must be valid"):

        class Wrong(TypedMessage, type="typed.wrong_default"):
            quantity: int = "many"  # type: ignore[assignment]


def test_an_attribute_that_may_be_none_has_no_other_default_since_none_is_absent() -> None:
    with pytest.raises(ValidationError, match="as for every optional"):

        class Ambiguous(TypedMessage, type="typed.ambiguous"):
            quantity: int | None = 5


def test_a_class_tells_how_its_messages_are_made() -> None:
    class Measured(TypedMessage, type="typed.measured"):
        name: str
        quantity: int = 1

    assert str(inspect.signature(Measured)) == "(*, name: str, quantity: int = 1)"


@pytest.mark.parametrize(
    "versions", [("2", None), ("2", "1"), (None, "10", "9"), ("3",), (None, "4")]
)
def test_upcasters_that_would_be_passed_over_are_refused(versions: tuple[str | None, ...]) -> None:
    with pytest.raises(ValidationError, match="the oldest first"):

        class Passed(
            TypedMessage,
            type="typed.passed_over",
            schema_version="3",
            upcasters=dict.fromkeys(versions, dict),
        ):
            pass


def test_a_message_is_immutable() -> None:
    lines = ["pen"]
    placed = OrderPlaced(order_id="1", lines=lines)
    lines.append("ink")

    with pytest.raises(FrozenInstanceError):
        placed.order_id = "2"  # type: ignore[misc]

    assert placed.lines == ["pen"]
    tagged = placed.with_metadata(user="joe")
    (tagged.message_metadata or {})["user"] = "jake"
    assert tagged.message_metadata == {"user": "joe"}


def test_messages_with_the_same_values_are_equal_and_have_ids_of_their_own() -> None:
    first, second = OrderPlaced(order_id="1"), OrderPlaced(order_id="1")

    assert first == second
    assert first != OrderPlaced(order_id="2")
    assert first.message_id != second.message_id


def test_two_classes_for_one_type_are_refused() -> None:
    with pytest.raises(ValidationError, match="OrderPlaced"):

        class Impostor(TypedMessage, type="typed.order_placed"):
            pass


def test_a_class_that_is_defined_again_replaces_itself() -> None:
    def define() -> type[TypedMessage]:
        class Reloaded(TypedMessage, type="typed.reloaded"):
            name: str

        return Reloaded

    first, second = define(), define()

    assert first is not second


@pytest.mark.parametrize("name", ["message_id", "to_conditions", "schema_version", "_private"])
def test_a_name_that_is_taken_is_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        type("Taken", (TypedMessage,), {"__annotations__": {name: str}}, type="typed.taken")


def test_a_type_that_could_not_be_a_category_is_refused() -> None:
    with pytest.raises(ValidationError):

        class Hyphened(TypedMessage, type="order-placed"):
            pass


def test_an_unindexed_name_must_exist() -> None:
    with pytest.raises(ValidationError):

        class Wrong(TypedMessage, type="typed.wrong", unindexed=["nothing"]):
            name: str


def test_an_unknown_type_is_named_on_reading(store: Store) -> None:
    with pytest.raises(UnknownMessageType, match=r"nobody\.knows") as raised:
        write(store, Message("nobody.knows", {}))

    assert raised.value.type == "nobody.knows"


def test_what_is_written_is_read_back(store: Store) -> None:
    placed = OrderPlaced(order_id="1", quantity=2, lines=["pen"]).with_metadata(user="joe")

    read = write(store, placed)

    assert read == placed
    assert read.message_id == placed.message_id
    assert read.message_metadata == {"user": "joe"}


def test_none_means_absent(store: Store) -> None:
    class Optional(TypedMessage, type="typed.optional"):
        order_id: str | None
        colour: Colour | None = None

    read = write(store, Optional(order_id=None))

    recorded = store.get_last_stream_message("order-1")
    assert recorded is not None
    assert recorded.data == {}
    assert read == Optional(order_id=None)
    assert Optional.to_conditions(order_id=None, colour=None) == []


def test_fields_that_the_class_does_not_know_are_ignored_on_reading(store: Store) -> None:
    read = write(store, Message("typed.order_placed", {"order_id": "1", "since": "later"}))

    assert read == OrderPlaced(order_id="1")


@pytest.mark.parametrize("data", [{}, {"order_id": None}, {"order_id": 1}])
def test_data_that_does_not_fit_the_class_is_reported_with_its_place(
    store: Store, data: dict[str, Any]
) -> None:
    with pytest.raises(DecodingError) as raised:
        write(store, Message("typed.order_placed", data))

    assert raised.value.stream_name == "order-1"


@pytest.mark.parametrize(
    ("version", "data", "place"),
    [
        (None, {"id": "7"}, "unknown"),
        ("2", {"order": "7"}, "unknown"),
        ("3", {"order_id": "7", "place": "Rome"}, "Rome"),
    ],
)
def test_older_versions_are_brought_up_to_date(
    store: Store, version: str | None, data: dict[str, Any], place: str
) -> None:
    metadata = {"schema_version": version} if version else None

    read = write(store, Message("typed.order_moved", data, metadata))

    assert read == OrderMoved(order_id="7", place=place)


def test_the_version_is_written_and_an_unknown_one_is_refused(store: Store) -> None:
    moved = OrderMoved(order_id="7", place="Rome")
    assert moved.to_message().metadata == {"schema_version": "3"}

    with pytest.raises(DecodingError, match="version 9"):
        write(store, Message("typed.order_moved", {}, {"schema_version": "9"}))


def test_a_message_can_follow_another(store: Store) -> None:
    store.write_message("order-1", OrderPlaced(order_id="1"))
    cause = store.get_last_stream_message("order-1")
    assert cause is not None

    moved = OrderMoved(order_id="1", place="Rome").caused_by(cause)

    assert moved.message_metadata is not None
    assert moved.message_metadata["causation_id"] == str(cause.id)


def test_the_same_message_written_twice_is_written_once(store: Store) -> None:
    placed = OrderPlaced(order_id="1").with_id("11111111-1111-4111-8111-111111111111")

    first, again = store.append(placed), store.append(placed)

    assert first == again


def test_typed_and_plain_messages_mix(store: Store) -> None:
    appended = store.append([OrderPlaced(order_id="1"), Message("plain", {"order_id": "1"})])

    found, _ = store.read(OrderPlaced.to_conditions(order_id="1"))

    assert len(appended.positions) == 2
    assert [typed(one) for one in found] == [OrderPlaced(order_id="1")]


VALUES: list[tuple[Any, Any]] = [
    (str, "text"),
    (str, 'with "quotes", \\ and é ✓'),
    (str, ""),
    (int, 0),
    (int, -7),
    (int, 2**60),
    (bool, True),
    (bool, False),
    (UUID, UUID("11111111-1111-4111-8111-111111111111")),
    (date, date(2026, 11, 15)),
    (datetime, datetime(2026, 11, 15, 12, 30, 0, 5, tzinfo=UTC)),
    (Decimal, Decimal("1.50")),
    (Colour, Colour.RED),
    (Size, Size.LARGE),
    (Literal["a", "b"], "a"),
    (str | None, "text"),
]


@pytest.mark.parametrize(("annotation", "value"), VALUES)
def test_a_value_is_found_as_postgresql_sees_it(store: Store, annotation: Any, value: Any) -> None:
    made: Any = type(
        "Valued", (TypedMessage,), {"__annotations__": {"value": annotation}}, type="typed.valued"
    )

    store.append(made(value=value))
    found, guard = store.read(made.to_conditions(value=value))

    assert [typed(one) for one in found] == [made(value=value)]
    with pytest.raises(penstock.ConcurrentAppendError):
        store.append(made(value=value), penstock.Guard(guard.conditions))


@pytest.mark.parametrize("value", [1.5, b"bytes", ["a"], {"a": 1}, "nul\0", None, object()])
def test_a_condition_on_what_cannot_be_indexed_is_refused(value: Any) -> None:
    with pytest.raises(ValidationError):
        QueryCondition("typed.order_placed", "order_id", value)


def test_half_a_condition_is_refused() -> None:
    with pytest.raises(ValidationError):
        QueryCondition("typed.order_placed", None, "1")
    with pytest.raises(ValidationError):
        QueryCondition("")


def test_attributes_kept_out_of_the_index_may_come_from_anywhere() -> None:
    class Noted(TypedMessage, type="typed.noted", unindexed=(name for name in ["text"])):
        course: str
        text: str

    assert Noted.indexed_attribute_names == ("course",)


def test_a_schema_version_is_a_text() -> None:
    with pytest.raises(ValidationError, match="schema_version"):

        class Versioned(TypedMessage, type="typed.versioned", schema_version=2):  # type: ignore[arg-type]
            course: str


def test_an_upcaster_that_fails_in_its_own_way_makes_the_message_undecodable(store: Store) -> None:
    class Moved(
        TypedMessage,
        type="typed.moved",
        schema_version="2",
        upcasters={None: lambda data: data["missing"] + None},
    ):
        course: str

    store.write_message("some-1", "typed.moved", {"missing": "x"})
    [message] = store.get_stream_messages("some-1")

    with pytest.raises(DecodingError):
        Moved.from_recorded(message)


def test_a_message_is_found_whatever_its_serializer_makes_of_dates(database_url: str) -> None:
    class InWords:
        def encode(self, type: str, value: Mapping[str, Any]) -> str:
            return json.dumps(value, default=str)

        def decode(self, type: str, text: str) -> dict[str, Any]:
            return dict(json.loads(text))

    class Booked(TypedMessage, type="typed.booked"):
        slot: datetime
        room: UUID

    slot, room = datetime(2026, 1, 1, 12, tzinfo=UTC), UUID(int=7)
    with penstock.connect(database_url, serializer=InWords()) as store:
        _, guard = store.read(Booked.to_conditions(slot=slot))
        store.append(Booked(slot=slot, room=room), guard)

        found, _ = store.read(Booked.to_conditions(room=room))
        assert [typed(one) for one in found] == [Booked(slot=slot, room=room)]
        with pytest.raises(penstock.ConcurrentAppendError):
            store.append(Booked(slot=slot, room=room), guard)


class Everything(TypedMessage, type="typed.everything"):
    colour: Colour
    number: int
    price: Decimal
    room: UUID
    done: bool


@pytest.mark.parametrize(
    "wrong",
    [
        {"colour": "RED"},
        {"number": "five"},
        {"number": True},
        {"done": 1},
        {"room": "nonsense"},
        {"price": "cheap"},
    ],
)
def test_a_condition_on_a_value_that_the_attribute_cannot_have_is_refused(
    wrong: dict[str, Any],
) -> None:
    with pytest.raises(ValidationError, match=rf"Everything\.{next(iter(wrong))} must be valid"):
        Everything.to_conditions(**wrong)


def test_a_condition_has_its_value_as_the_class_writes_it() -> None:
    id = "018F6D1C-7A2B-7C3D-8E4F-5A6B7C8D9E0F"
    conditions = Everything.to_conditions(colour=Colour.RED, number="5", room=id, done=True)

    assert [one.value for one in conditions] == ["red", "5", id.lower(), "true"]


def test_an_upcast_message_that_is_written_again_has_the_new_version(store: Store) -> None:
    store.write_message("order-1", "typed.order_moved", {"order": "1"}, {"schema_version": "2"})
    recorded = store.get_last_stream_message("order-1")
    assert recorded is not None
    moved = typed(recorded)

    assert write(store, moved.with_id(penstock.new_id())) == moved


def test_keys_that_are_no_text_come_back_as_they_were(store: Store) -> None:
    class Counted(TypedMessage, type="typed.counted"):
        votes: dict[int, int]

    assert write(store, Counted(votes={1: 2})).votes == {1: 2}


UserId = NewType("UserId", str)


def test_attributes_of_types_with_another_name_are_indexed_and_their_limits_kept() -> None:
    class Named(TypedMessage, type="typed.named"):
        user_id: UserId
        code: Annotated[str, msgspec.Meta(max_length=2)]
        kind: Literal["a", None]
        born: Final[date] = date(2000, 1, 1)

    assert Named.indexed_attribute_names == ("user_id", "code", "kind", "born")
    with pytest.raises(ValidationError, match="length <= 2"):
        Named(user_id=UserId("joe"), code="too long", kind="a")


@pytest.mark.parametrize("hint", [UUID | str, date | datetime])
def test_types_that_json_cannot_tell_apart_are_refused_at_definition(hint: Any) -> None:
    with pytest.raises(ValidationError, match="of types that differ in JSON"):
        type("Alike", (TypedMessage,), {"__annotations__": {"ref": hint}}, type="typed.alike")


@pytest.mark.parametrize(
    "wrong",
    [
        {"unindexed": None},
        {"unindexed": "name"},
        {"upcasters": [dict]},
        {"upcasters": {None: "no function"}},
        {"upcasters": {1: dict}},
    ],
)
def test_a_class_that_is_defined_with_nonsense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        type("Nonsense", (TypedMessage,), {}, type="typed.nonsense", **wrong)


def test_a_typed_message_may_be_the_cause_of_another() -> None:
    cause = OrderPlaced(order_id="1")
    caused = OrderPlaced(order_id="2").caused_by(cause)

    assert caused.to_message().causation_id == str(cause.message_id)
    with pytest.raises(ValidationError, match="cause must be a message"):
        OrderPlaced(order_id="2").caused_by("order 1")  # type: ignore[arg-type]
