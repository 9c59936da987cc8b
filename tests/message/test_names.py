"""The grammar of stream names: the specification's examples, and what holds for every name."""

import doctest
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.message import names

# stream name, category, id, cardinal id, types, base category: the tables and examples of the
# specification's sections 2.1, 2.2 and 5 and its appendix A.
EXAMPLES = [
    ("account", "account", None, None, [], "account"),
    ("withdrawal", "withdrawal", None, None, [], "withdrawal"),
    ("$all", "$all", None, None, [], "$all"),
    ("account-123", "account", "123", "123", [], "account"),
    ("account-456", "account", "456", "456", [], "account"),
    ("account-123-456", "account", "123-456", "123", [], "account"),
    ("withdrawal-xyz", "withdrawal", "xyz", "xyz", [], "withdrawal"),
    ("withdrawal-abc-def", "withdrawal", "abc-def", "abc", [], "withdrawal"),
    ("user-abc-def-ghi", "user", "abc-def-ghi", "abc", [], "user"),
    ("position-consumer1", "position", "consumer1", "consumer1", [], "position"),
    (
        "order-550e8400-e29b-41d4-a716-446655440000",
        "order",
        "550e8400-e29b-41d4-a716-446655440000",
        "550e8400",
        [],
        "order",
    ),
    ("account:command", "account:command", None, None, ["command"], "account"),
    ("account:position", "account:position", None, None, ["position"], "account"),
    ("order:command", "order:command", None, None, ["command"], "order"),
    ("account:command-123", "account:command", "123", "123", ["command"], "account"),
    ("account:command-456", "account:command", "456", "456", ["command"], "account"),
    ("account:command-789", "account:command", "789", "789", ["command"], "account"),
    ("withdrawal:command-xyz", "withdrawal:command", "xyz", "xyz", ["command"], "withdrawal"),
    ("order:command-550e8400", "order:command", "550e8400", "550e8400", ["command"], "order"),
    ("account:snapshot-123", "account:snapshot", "123", "123", ["snapshot"], "account"),
    ("account:snapshot-789", "account:snapshot", "789", "789", ["snapshot"], "account"),
    ("order:snapshot-456", "order:snapshot", "456", "456", ["snapshot"], "order"),
    (
        "withdrawal:position-consumer-1",
        "withdrawal:position",
        "consumer-1",
        "consumer",
        ["position"],
        "withdrawal",
    ),
    (
        "account:position-service-a",
        "account:position",
        "service-a",
        "service",
        ["position"],
        "account",
    ),
    (
        "withdrawal:position-worker-1",
        "withdrawal:position",
        "worker-1",
        "worker",
        ["position"],
        "withdrawal",
    ),
    (
        "order:position-consumer-group-0",
        "order:position",
        "consumer-group-0",
        "consumer",
        ["position"],
        "order",
    ),
    ("category:v0-streamId", "category:v0", "streamId", "streamId", ["v0"], "category"),
    ("account:v0-streamId", "account:v0", "streamId", "streamId", ["v0"], "account"),
    ("account:v0-123", "account:v0", "123", "123", ["v0"], "account"),
    ("order:v1-456", "order:v1", "456", "456", ["v1"], "order"),
    ("transaction:v2-789", "transaction:v2", "789", "789", ["v2"], "transaction"),
    # Types begin at the first colon and are parted by pluses alone.
    ("account:command:v1-123", "account:command:v1", "123", "123", ["command:v1"], "account"),
    (
        "aggregate:snapshot:v2-789",
        "aggregate:snapshot:v2",
        "789",
        "789",
        ["snapshot:v2"],
        "aggregate",
    ),
    (
        "account:command+position",
        "account:command+position",
        None,
        None,
        ["command", "position"],
        "account",
    ),
    (
        "transaction:event+audit",
        "transaction:event+audit",
        None,
        None,
        ["event", "audit"],
        "transaction",
    ),
    (
        "transaction:event+audit-123",
        "transaction:event+audit",
        "123",
        "123",
        ["event", "audit"],
        "transaction",
    ),
    (
        "transaction:event+audit-xyz",
        "transaction:event+audit",
        "xyz",
        "xyz",
        ["event", "audit"],
        "transaction",
    ),
    ("order:snapshot+v2", "order:snapshot+v2", None, None, ["snapshot", "v2"], "order"),
    ("order:snapshot+v2-456", "order:snapshot+v2", "456", "456", ["snapshot", "v2"], "order"),
    (
        "order:snapshot+v2+compressed",
        "order:snapshot+v2+compressed",
        None,
        None,
        ["snapshot", "v2", "compressed"],
        "order",
    ),
    (
        "order:snapshot+v2+compressed-123",
        "order:snapshot+v2+compressed",
        "123",
        "123",
        ["snapshot", "v2", "compressed"],
        "order",
    ),
    (
        "account:command+replay-456",
        "account:command+replay",
        "456",
        "456",
        ["command", "replay"],
        "account",
    ),
]


@pytest.mark.parametrize(("name", "category", "id", "cardinal_id", "types", "base"), EXAMPLES)
def test_the_specification_s_examples(
    name: str,
    category: str,
    id: str | None,
    cardinal_id: str | None,
    types: list[str],
    base: str,
) -> None:
    assert names.category(name) == category
    assert names.id(name) == id
    assert names.cardinal_id(name) == cardinal_id
    assert names.is_category(name) is (id is None)
    assert names.types(name) == names.get_category_types(name) == types
    assert names.base_category(name) == names.get_base_category(name) == base


@pytest.mark.parametrize(
    ("name", "cardinal_id"),
    [
        ("account-123+456", "123"),
        ("account-12-3+456", "12-3"),
        ("account-123+4-5+6", "123"),
        ("account-+456", ""),
    ],
)
def test_a_cardinal_id_ends_at_the_first_plus_if_there_is_one(name: str, cardinal_id: str) -> None:
    assert names.cardinal_id(name) == cardinal_id


@pytest.mark.parametrize(
    ("name", "category", "id"),
    [("", "", None), ("-", "", ""), ("account-", "account", ""), ("-123", "", "123")],
)
def test_odd_names_come_apart_as_they_do_on_the_server(
    name: str, category: str, id: str | None
) -> None:
    assert (names.category(name), names.id(name)) == (category, id)


# What PostgreSQL answers to: select left('x' || md5(value), 17)::bit(64)::bigint
@pytest.mark.parametrize(
    ("value", "hash_64"),
    [
        ("account-123", 2828383952216582226),
        ("account", -2132379389342958165),
        ("123", 2318431741638412123),
        ("", -3162216497309240828),
        ("é–😀", 6346910874773328217),
    ],
)
def test_hash_64_is_the_server_s(value: str, hash_64: int) -> None:
    assert names.hash_64(value) == hash_64


def test_the_examples_in_the_docstrings_are_true() -> None:
    assert doctest.testmod(names).failed == 0
    assert doctest.testmod(names).attempted > 0


class TestGroupMember:
    def test_streams_of_one_entity_go_to_one_member(self) -> None:
        related = ["account-123", "account:command-123", "transfer-123+456", "transfer-123+7-8"]

        members = {names.group_member(name, 1000) for name in related}

        assert members == {2318431741638412123 % 1000}

    def test_a_negative_hash_counts_by_its_size(self) -> None:
        assert names.group_member("anything-account", 1000) == 2132379389342958165 % 1000

    def test_hyphens_do_not_shorten_the_id(self) -> None:
        assert names.group_member("a-1-2", 2**40) != names.group_member("a-1-3", 2**40)

    def test_a_category_belongs_to_no_member(self) -> None:
        assert names.group_member("account:command", 3) is None

    @pytest.mark.parametrize("size", [0, -1])
    def test_a_group_without_members_is_refused(self, size: int) -> None:
        with pytest.raises(ValueError, match=f"not {size}"):
            names.group_member("account-123", size)


class TestStreamName:
    def test_makes_each_form_of_the_grammar(self) -> None:
        assert names.stream_name("account") == "account"
        assert names.stream_name("account", "123-456+7") == "account-123-456+7"
        assert names.stream_name("account", types=["command"]) == "account:command"
        assert names.stream_name("order", "1", types=["snapshot", "v2"]) == "order:snapshot+v2-1"

    def test_adds_types_after_those_of_the_category(self) -> None:
        assert names.stream_name("account:command", "c1", types=["position"]) == (
            "account:command+position-c1"
        )

    def test_takes_a_uuid_for_an_id(self) -> None:
        text = "550e8400-e29b-41d4-a716-446655440000"

        assert names.stream_name("order", UUID(text)) == f"order-{text}"

    @pytest.mark.parametrize("category", ["", "ac-count", ":command"])
    def test_refuses_a_category_that_is_empty_or_holds_a_hyphen(self, category: str) -> None:
        with pytest.raises(ValueError, match="category"):
            names.stream_name(category, "123")

    @pytest.mark.parametrize("type", ["", "com-mand", "command+position"])
    def test_refuses_a_type_that_is_empty_or_holds_a_separator(self, type: str) -> None:
        with pytest.raises(ValueError, match="type"):
            names.stream_name("account", types=[type])

    def test_refuses_an_empty_id(self) -> None:
        with pytest.raises(ValueError, match="id must not be empty"):
            names.stream_name("account", "")


# Mostly separators, so that they meet in every order.
any_name = st.text(st.sampled_from("ab1-+:é😀$ ")) | st.text(st.characters(codec="utf-8"))
bases = st.text(st.characters(codec="utf-8", exclude_characters="-:"), min_size=1)
type_lists = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="-+"), min_size=1), max_size=3
)
ids = st.none() | st.text(st.characters(codec="utf-8"), min_size=1)


@given(any_name)
def test_category_and_id_make_up_the_name(name: str) -> None:
    id = names.id(name)

    whole = names.category(name) if id is None else f"{names.category(name)}-{id}"

    assert whole == name


@given(any_name)
def test_a_category_is_a_name_that_is_its_own_category(name: str) -> None:
    assert names.is_category(name) is (names.category(name) == name)
    assert names.is_category(names.category(name))


@given(any_name)
def test_a_cardinal_id_begins_the_id_and_exists_with_it(name: str) -> None:
    id, cardinal_id = names.id(name), names.cardinal_id(name)

    if id is None:
        assert cardinal_id is None
    else:
        assert cardinal_id is not None
        assert id.startswith(cardinal_id)
        assert "+" not in cardinal_id


@given(any_name)
def test_types_and_base_depend_on_the_category_alone(name: str) -> None:
    assert names.types(name) == names.types(names.category(name))
    assert names.base_category(name) == names.base_category(names.category(name))


@given(bases, type_lists, ids)
def test_a_name_that_was_made_comes_apart_into_its_parts(
    base: str, types: list[str], id: str | None
) -> None:
    name = names.stream_name(base, id, types=types)

    assert (names.base_category(name), names.types(name), names.id(name)) == (base, types, id)


@given(any_name)
def test_a_hash_is_a_signed_64_bit_integer(name: str) -> None:
    assert -(2**63) <= names.hash_64(name) < 2**63


@given(any_name, st.integers(min_value=1, max_value=2**31))
def test_a_member_is_below_the_size_of_its_group(name: str, size: int) -> None:
    member = names.group_member(name, size)

    if names.is_category(name):
        assert member is None
    else:
        assert member is not None
        assert 0 <= member < size
