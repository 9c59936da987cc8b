"""A guarded append conflicts exactly where the rule of matching says so, however it comes.

A message that comes alone takes another way through the database than several do, or one that comes
late in a transaction; a few lines of Python say what all of them have to answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import (
    ConcurrentAppendError,
    Guard,
    Message,
    QueryCondition,
    Store,
    TypedMessage,
    new_id,
)
from penstock.log.guard import ranges_of

#: texts that an array, JSON or SQL would like to read as something else
VALUES = ["a", "b", "", "NULL", 'say "a"', "\\", "{a,b}", "a,b", " ", "'; --", "é\n"]


class Lent(TypedMessage, type="book.lent"):
    book: str | None = None
    reader: str | None = None


class Returned(TypedMessage, type="book.returned"):
    book: str | None = None


values = st.sampled_from(VALUES)
messages: st.SearchStrategy[TypedMessage] = st.one_of(
    st.builds(Lent, book=st.none() | values, reader=st.none() | values),
    st.builds(Returned, book=st.none() | values),
)
conditions = st.one_of(
    st.builds(QueryCondition, st.just("book.lent"), st.sampled_from(["book", "reader"]), values),
    st.builds(QueryCondition, st.just("book.returned"), st.just("book"), values),
    st.builds(QueryCondition, st.sampled_from(["book.lent", "book.returned"])),
)


def matches(message: TypedMessage, watched: Sequence[QueryCondition]) -> bool:
    """The rule: at least one of its type's attributes, and each that it carries has the value."""
    own = [one for one in watched if one.type == message.message_type]
    if any(one.name is None for one in own):
        return True
    wanted: dict[str, set[str | None]] = {}
    for one in own:
        wanted.setdefault(str(one.name), set()).add(one.value)
    carried = {name: getattr(message, name) for name in wanted}
    carried = {name: value for name, value in carried.items() if value is not None}
    return bool(carried) and all(value in wanted[name] for name, value in carried.items())


def append_alone(store: Store, message: TypedMessage | Message, guard: Guard) -> int:
    return store.append(message, guard).position


def append_in_a_batch(store: Store, message: TypedMessage | Message, guard: Guard) -> int:
    return store.append([message, Message("note")], guard).positions[0]


def append_late(store: Store, message: TypedMessage | Message, guard: Guard) -> int:
    with store.transaction() as transaction:
        transaction.write_message("diary-1", "Noted")
        return transaction.append(message, guard).position


@pytest.mark.parametrize("append", [append_alone, append_in_a_batch, append_late])
@settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    log=st.lists(messages, max_size=4),
    watched=st.lists(conditions, min_size=1, max_size=4),
    appended=messages,
    plain=st.booleans(),
    seen=st.integers(0, 4),
)
def test_an_append_conflicts_exactly_where_the_rule_says_so(
    store: Store,
    append: Callable[[Store, TypedMessage | Message, Guard], int],
    log: list[TypedMessage],
    watched: list[QueryCondition],
    appended: TypedMessage,
    plain: bool,
    seen: int,
) -> None:
    store.declare(Lent, Returned)
    beginning = store.append(Message("beginning")).position
    written = [store.append(one.with_id(new_id())).position for one in log]
    guard = Guard(tuple(watched), beginning, ranges_of(written[:seen]))
    message = Message("note") if plain else appended.with_id(new_id())

    try:
        append(store, message, guard)
        refused = False
    except ConcurrentAppendError:
        refused = True

    assert refused == any(matches(one, watched) for one in log[seen:])
