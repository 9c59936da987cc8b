"""Serializers: what JSON and jsonb can hold comes back the same, and all else is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from types import MappingProxyType
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import penstock
from penstock import JsonSerializer, Message, SerializerByType, Store
from penstock.errors import DecodingError
from penstock.errors import ValidationError as Refused
from penstock.message.serializer import encode_object

ID = UUID("a1b2c3d4-e5f6-4a5b-8c9d-0e1f2a3b4c5d")


@dataclass
class Money:
    amount: float
    currency: str


class Weight(msgspec.Struct):
    kilograms: float


class Color(Enum):
    RED = "red"


def encode(value: Mapping[str, Any], serializer: JsonSerializer | None = None) -> str:
    return encode_object(serializer or JsonSerializer(), "Opened", "data", value)


class TestJson:
    def test_keeps_the_order_of_fields_on_the_way_in(self) -> None:
        assert encode({"b": 1, "a": {"z": 1, "y": 2}, "c": 3}) == '{"b":1,"a":{"z":1,"y":2},"c":3}'

    def test_writes_text_as_it_is(self) -> None:
        assert encode({"ü": "😀\u2028"}) == '{"ü":"😀\u2028"}'

    @pytest.mark.parametrize(
        ("value", "written"),
        [
            (datetime(2025, 1, 2, 3, 4, 5, 678901, UTC), "2025-01-02T03:04:05.678901Z"),
            (ID, str(ID)),
            (Decimal("1.10"), "1.10"),
            (Color.RED, "red"),
            (Money(1.5, "USD"), {"amount": 1.5, "currency": "USD"}),
            (Weight(2.5), {"kilograms": 2.5}),
            ((1, 2), [1, 2]),
            ({7}, [7]),
            (b"ab", "YWI="),
            (MappingProxyType({"a": 1}), {"a": 1}),
        ],
    )
    def test_writes_python_values_that_json_has_a_form_for(
        self, value: object, written: object
    ) -> None:
        assert json.loads(encode({"value": value})) == {"value": written}

    def test_takes_any_mapping_for_an_object(self) -> None:
        assert encode(MappingProxyType({"a": MappingProxyType({"b": None})})) == '{"a":{"b":null}}'

    def test_refuses_other_values_and_names_them(self) -> None:
        with pytest.raises(Refused, match=r"a value that JSON can represent .*Fraction"):
            encode({"value": Fraction(1, 3)})

    def test_asks_the_hook_about_other_values(self) -> None:
        serializer = JsonSerializer(encode_unknown=str)

        assert encode({"value": Fraction(1, 3)}, serializer) == '{"value":"1/3"}'

    def test_refuses_data_that_contains_itself(self) -> None:
        data: dict[str, Any] = {}
        data["self"] = data

        with pytest.raises(Refused, match="data"):
            encode(data)

    @pytest.mark.parametrize("number", [2**63, 2**64, -(2**63) - 1, 10**400])
    def test_writes_integers_of_any_size(self, number: int) -> None:
        assert json.loads(encode({"n": number})) == {"n": number}


class TestWhatJsonbCannotHold:
    @pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
    @pytest.mark.parametrize(
        ("data", "path"),
        [
            (lambda number: {"n": number}, "data['n']"),
            (lambda number: {"a": None, "b": {"c": [1, number]}}, "data['b']['c'][1]"),
            (lambda number: {"a": ({"b": number},)}, "data['a'][0]['b']"),
            (lambda number: {"price": Money(number, "USD")}, "data['price']['amount']"),
            (lambda number: {"list": [Weight(number)]}, "data['list'][0]['kilograms']"),
        ],
    )
    def test_a_number_that_is_none_is_refused_by_its_path(
        self, number: float, data: Any, path: str
    ) -> None:
        with pytest.raises(Refused) as caught:
            encode(data(number))

        assert (caught.value.name, caught.value.expected) == (path, "a finite number")
        assert repr(caught.value.value) == repr(number)

    def test_a_number_that_the_hook_returns_is_looked_at_too(self) -> None:
        serializer = JsonSerializer(encode_unknown=lambda _: math.nan)

        with pytest.raises(Refused, match="a finite number"):
            encode({"value": Fraction(1, 3)}, serializer)

    def test_a_null_that_was_meant_is_let_through(self) -> None:
        assert encode({"n": None, "text": "null"}) == '{"n":null,"text":"null"}'

    def test_a_nul_character_is_refused_by_its_path(self) -> None:
        with pytest.raises(Refused, match=r"data\['a'\]\[0\] must be text without NUL"):
            encode({"a": ["b\0c"]})

    def test_a_nul_character_in_a_key_is_refused(self) -> None:
        with pytest.raises(Refused, match="without NUL"):
            encode({"a": {"b\0c": 1}})

    def test_the_text_of_an_escape_is_let_through(self) -> None:
        assert json.loads(encode({"a": r"\u0000"})) == {"a": r"\u0000"}

    @pytest.mark.parametrize("data", [{"a": "\ud800"}, {"\udfff": 1}, {"a": [{"b": "x\udc00y"}]}])
    def test_half_a_surrogate_pair_is_refused(self, data: dict[str, Any]) -> None:
        with pytest.raises(Refused, match="without unpaired surrogates"):
            encode(data)


class TestByType:
    class Shout:
        def encode(self, type: str, value: Mapping[str, Any]) -> str:
            return json.dumps({"shout": str(value["text"]).upper(), "type": type})

        def decode(self, type: str, text: str) -> dict[str, Any]:
            return {"text": json.loads(text)["shout"].lower()}

    def test_uses_the_serializer_of_the_type(self) -> None:
        serializer = SerializerByType({"Shouted": self.Shout()})

        text = serializer.encode("Shouted", {"text": "hello"})

        assert json.loads(text) == {"shout": "HELLO", "type": "Shouted"}
        assert serializer.decode("Shouted", text) == {"text": "hello"}

    def test_uses_the_default_for_other_types(self) -> None:
        plain = SerializerByType({"Shouted": self.Shout()})
        custom = SerializerByType({}, default=self.Shout())

        assert plain.encode("Said", {"text": "hello"}) == '{"text":"hello"}'
        assert plain.decode("Said", '{"text":"hello"}') == {"text": "hello"}
        assert json.loads(custom.encode("Said", {"text": "hello"}))["shout"] == "HELLO"

    def test_serves_a_store_for_writing_and_reading(self, database_url: str) -> None:
        serializer = SerializerByType({"Shouted": self.Shout()})

        with penstock.connect(database_url, serializer=serializer) as store:
            store.write_message("talk-1", "Shouted", {"text": "hello"})
            store.write_messages("talk-1", [Message("Said", {"text": "hello"})])

            assert [m.data for m in store.get_stream_messages("talk-1")] == [{"text": "hello"}] * 2
        with penstock.connect(database_url) as plain:
            stored = [message.data for message in plain.get_stream_messages("talk-1")]
        assert stored == [{"shout": "HELLO", "type": "Shouted"}, {"text": "hello"}]


class TestACustomSerializer:
    class Broken:
        def __init__(self, text: str) -> None:
            self._text = text

        def encode(self, type: str, value: Mapping[str, Any]) -> str:
            return self._text

        def decode(self, type: str, text: str) -> dict[str, Any]:
            raise ValueError("cannot read it")

    @pytest.mark.parametrize("text", ["[1]", "5", "null", "", '"text"'])
    def test_must_write_an_object(self, database_url: str, text: str) -> None:
        with penstock.connect(database_url, serializer=self.Broken(text)) as store:
            with pytest.raises(Refused, match="serialized as a JSON object"):
                store.write_message("account-1", "Opened", {"a": 1})

            assert store.stream_version("account-1") is None

    def test_may_write_white_space_around_it(self, database_url: str) -> None:
        class Pretty(JsonSerializer):
            def encode(self, type: str, value: Mapping[str, Any]) -> str:
                return "\n" + json.dumps(value, indent=2) + "\n"

        with penstock.connect(database_url, serializer=Pretty()) as store:
            store.write_message("account-1", "Opened", {"a": 1})

            (message,) = store.get_stream_messages("account-1")
        assert message.data == {"a": 1}

    def test_that_cannot_read_a_message_has_it_named(self, database_url: str) -> None:
        with penstock.connect(database_url, serializer=self.Broken("{}")) as store:
            store.write_message("account-1", "Opened")

            with pytest.raises(DecodingError, match="cannot read it") as caught:
                store.get_stream_messages("account-1")

        assert (caught.value.stream_name, caught.value.global_position) == ("account-1", 1)

    def test_may_fail_to_read_one_in_any_way(self, database_url: str) -> None:
        class Locked(JsonSerializer):
            def decode(self, type: str, text: str) -> dict[str, Any]:
                raise KeyError("no key for this message")

        with penstock.connect(database_url, serializer=Locked()) as store:
            store.write_message("account-1", "Opened")

            with pytest.raises(DecodingError, match="no key for this message"):
                store.get_stream_messages("account-1")


# What JSON has a form for. Floats come back as numbers of the same value: jsonb writes a whole one
# of 1e16 or more without a point, so that it is read as an integer.
numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers()
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(texts, values, max_size=5)


def same(read: Any, written: Any) -> bool:
    if isinstance(written, dict):
        return read.keys() == written.keys() and all(same(read[k], written[k]) for k in written)
    if isinstance(written, list):
        return len(read) == len(written) and all(map(same, read, written))
    if isinstance(written, float):
        return float(read) == written
    return type(read) is type(written) and read == written


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(objects, st.none() | objects)
@example({"n": 1e308, "m": 5e-324, "zero": -0.0, "e": 1e16}, {"big": 10**400})
@example({"": {"": [[], {}, ""]}}, {})
@example({"text": "\\u0000 \u2028 \ufeff \x7f \uffff"}, None)
def test_what_was_written_is_what_is_read(
    store: Store, data: dict[str, Any], metadata: dict[str, Any] | None
) -> None:
    position = store.write_message("account-1", "Opened", data, metadata)
    (again,) = store.write_messages("account-1", [Message("Opened", data, metadata)])

    for message in store.get_stream_messages("account-1", position, 2):
        assert same(message.data, data)
        assert same(message.metadata, metadata)
    assert again == position + 1
