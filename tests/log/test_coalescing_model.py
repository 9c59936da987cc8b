"""The outcome of calls in a batch is that of the same calls one by one, in some order.

First with batches that are made up, and the same calls made alone, in the order that the batch
stands for. Then with threads that call as they like: the log is the order, and explains each
result and each refusal.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from itertools import pairwise
from typing import Any
from uuid import UUID

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
    WrongExpectedVersion,
    new_id,
)
from penstock.database.batch import Refused, write_batch
from penstock.database.operation import Operation
from penstock.errors import DuplicateMessageId, PenstockError, error_of
from penstock.log import append, write
from penstock.log.guard import ranges_of
from tests.both_ways import store as store_of_both
from tests.log.meeting import transactions
from tests.log.test_guard_model import matches
from tests.racing import at_once

BOOKS = ["a", "b"]
store_both = store_of_both


class Lent(TypedMessage, type="copy.lent"):
    book: str | None = None
    reader: str | None = None


class Returned(TypedMessage, type="copy.returned"):
    book: str | None = None


@dataclass(frozen=True)
class Call:
    """A call, in words that hold for any log: streams, ids and earlier messages by number."""

    kind: str
    message: TypedMessage
    id: int | None
    stream: int | None = None
    expected: int | None = None
    more: int = 0
    watched: tuple[QueryCondition, ...] = ()
    seen: int = 0


books, ids = st.none() | st.sampled_from(BOOKS), st.none() | st.integers(0, 2)
messages: st.SearchStrategy[TypedMessage] = st.one_of(
    st.builds(Lent, book=books, reader=st.none() | st.sampled_from(BOOKS)),
    st.builds(Returned, book=books),
)
conditions = st.one_of(
    st.builds(QueryCondition, st.just("copy.lent"), st.sampled_from(["book", "reader"]),
              st.sampled_from(BOOKS)),
    st.builds(QueryCondition, st.just("copy.returned"), st.just("book"), st.sampled_from(BOOKS)),
    st.builds(QueryCondition, st.sampled_from(["copy.lent", "copy.returned"])),
)  # fmt: skip
versions = st.none() | st.integers(-1, 2)
calls = st.one_of(
    st.builds(Call, st.just("write"), messages, ids, st.integers(0, 1), versions),
    st.builds(Call, st.just("write"), messages, ids, st.integers(0, 1), versions,
              more=st.integers(1, 2)),
    st.builds(Call, st.just("append"), messages, ids, st.none(), st.none(), st.integers(0, 1),
              st.lists(conditions, max_size=3).map(tuple), st.integers(0, 3)),
    st.builds(Call, st.just("append"), messages, ids, st.integers(0, 1), versions,
              st.integers(0, 1), st.lists(conditions, max_size=3).map(tuple), st.integers(0, 3)),
)  # fmt: skip


@dataclass
class World:
    """A part of a log of its own: a run of the same calls from the same beginning."""

    store: Store
    setup: Sequence[TypedMessage]
    name: str = field(default_factory=lambda: new_id().hex)
    names: dict[int, UUID] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.low = self.store.append(Message("beginning")).position
        self.written = [self.store.append(one.with_id(new_id())).position for one in self.setup]
        for number in range(3):
            self.names[number] = new_id()
        self.numbers = {id: number for number, id in self.names.items()}

    def operation(self, call: Call, number: int) -> Operation[Any]:
        """The call in this world. Ids that are not shared are numbered, to compare worlds."""
        plain = []
        for nth in range(call.more + 1):
            id = self.names.get(call.id) if call.id is not None and nth == 0 else None
            id = id or self.names.setdefault(100 + 10 * number + nth, new_id())
            self.numbers[id] = next(n for n, one in self.names.items() if one == id)
            plain.append(call.message.with_id(id).to_message())
        stream = None if call.stream is None else f"shelf-{self.name}{call.stream}"
        context = self.store.context
        if call.kind == "write":
            assert stream is not None
            if call.more:
                return write.write_messages(context, stream, plain, call.expected)
            return write.write_message(context, stream, plain[0], expected_version=call.expected)
        guard = None
        if call.watched:
            guard = Guard(call.watched, self.low, ranges_of(self.written[: call.seen]))
        return append.append(context, plain, guard, stream, call.expected)

    def run(self, operation: Operation[Any]) -> object:
        try:
            return self.said(self.store.run(operation))
        except PenstockError as error:
            return self.said(error)

    def said(self, outcome: Any) -> object:
        """An outcome in words that hold for any world."""
        if isinstance(outcome, WrongExpectedVersion):
            return "version", outcome.stream_name[-1], outcome.expected, outcome.actual
        if isinstance(outcome, ConcurrentAppendError):
            return "guard", outcome.type, self.message_at(outcome.position)
        if isinstance(outcome, DuplicateMessageId):
            return "id", self.numbers[UUID(str(outcome.id))]
        if isinstance(outcome, append.Appended):
            guard = outcome.guard and [self.message_at(one) for one, _ in outcome.guard.seen]
            return [self.message_at(one) for one in outcome.positions], guard
        return outcome

    def message_at(self, position: int) -> object:
        if position in self.written:
            return "before", self.written.index(position)
        [message] = self.store.get_category_messages("$all", position, 1)
        return self.numbers[message.id]

    def log(self) -> list[tuple[object, int]]:
        after = (self.written or [self.low])[-1] + 1
        found = self.store.get_category_messages("$all", after, 1000)
        return [(self.numbers[one.id], one.position) for one in found]


def run_as_batch(world: World, operations: Sequence[Operation[Any]]) -> tuple[list[int], list[Any]]:
    """Return in which order the calls were made, and what became of each."""
    outcomes: list[Any] = [None] * len(operations)
    left_out = []
    for number, outcome in enumerate(world.store.run(write_batch(operations))):
        item = operations[number].item
        if not isinstance(outcome, Refused):
            assert item is not None
            outcomes[number] = world.said(item.decode(*outcome))
        elif outcome.code == "unbatched":
            left_out.append(number)
        else:
            outcomes[number] = world.said(error_of(outcome.code, outcome.facts, "here"))
    for number in left_out:
        outcomes[number] = world.run(operations[number])
    together = [number for number in range(len(operations)) if number not in left_out]
    return [*together, *left_out], outcomes


@settings(
    max_examples=100,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(setup=st.lists(messages, max_size=3), made=st.lists(calls, min_size=1, max_size=6))
def test_a_batch_does_what_its_calls_do_one_by_one(
    store: Store, setup: list[TypedMessage], made: list[Call]
) -> None:
    store.declare(Lent, Returned)
    batched = World(store, setup)
    order, together = run_as_batch(
        batched, [batched.operation(call, number) for number, call in enumerate(made)]
    )
    written = batched.log()

    single = World(store, setup)
    one_by_one: list[Any] = [None] * len(made)
    for number in order:
        one_by_one[number] = single.run(single.operation(made[number], number))

    assert together == one_by_one
    assert written == single.log()


@pytest.mark.parametrize("seed", range(4))
def test_concurrent_calls_are_explained_by_the_log(
    store_both: Any, database_url: str, seed: int
) -> None:
    store = store_both
    store.declare(Lent, Returned)
    low = store.append(Message("beginning")).position

    outcomes = at_once(
        *[lambda number=number: call_at_random(store, low, seed, number) for number in range(24)]
    )

    log = store.get_category_messages("$all", low + 1, 10_000)
    made = [one for each in outcomes for one in _listed(each)]
    succeeded = [message for messages, _, _, outcome in made for message in messages
                 if not isinstance(outcome, PenstockError)]  # fmt: skip
    assert sorted(str(one.id) for one in succeeded) == sorted(str(one.id) for one in log)
    order = TopologicalSorter[UUID]()
    for one, next_one in pairwise(sorted(log, key=lambda one: (one.stream_name, one.position))):
        if one.stream_name == next_one.stream_name:
            order.add(next_one.id, one.id)
    at = {one.global_position: one for one in log}
    for messages_of_call, expected, guard, outcome in made:
        explain(at, order, messages_of_call, expected, guard, outcome)
    assert len(list(order.static_order())) <= len(log)  # which raises CycleError if there is none
    assert transactions(database_url, "shelf", "copy.lent", "copy.returned") < len(log)


Made = tuple[list[Message], tuple[str, int | None] | None, Guard | None, Any]


def _listed(outcome: list[Made] | Exception) -> list[Made]:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def call_at_random(store: Any, low: int, seed: int, number: int) -> list[Made]:
    """Make calls at random, each on what the last read showed; keep what became of each."""
    chance, made = random.Random(1000 * seed + number), []
    for _ in range(12):
        message = chance.choice(
            [Lent(book=chance.choice(BOOKS), reader=chance.choice(BOOKS)), Returned(book="a")]
        ).to_message()
        stream, expected, guard = f"shelf-{chance.randrange(3)}", None, None
        try:
            if chance.random() < 0.5:
                if chance.random() < 0.5:
                    version = store.stream_version(stream)
                    expected = -1 if version is None else version
                outcome = store.write_message(stream, message, expected_version=expected)
            else:
                watched = [QueryCondition("copy.lent", "book", chance.choice(BOOKS))]
                guard = store.read(watched)[1] if chance.random() < 0.7 else None
                outcome = store.append(message, guard)
                stream = ""
        except PenstockError as error:
            outcome = error
        made.append(([message], (stream, expected) if stream else None, guard, outcome))
    return made


def explain(
    at: dict[int, Any],
    order: TopologicalSorter[UUID],
    messages: list[Message],
    expected: tuple[str, int | None] | None,
    guard: Guard | None,
    outcome: Any,
) -> None:
    """Fail unless the log explains what became of a call; note what came before it and after.

    A message that a guard watches came before the append if that has seen it, else after it. (It
    may have a lower position: a write that went alone takes its position, then waits for the lock.)
    """
    if isinstance(outcome, WrongExpectedVersion):
        assert expected is not None
        assert outcome.actual != expected[1]
        assert any((one.stream_name, one.position) == (expected[0], outcome.actual)
                   for one in at.values())  # fmt: skip
    elif isinstance(outcome, ConcurrentAppendError):
        assert guard is not None
        assert matches_guard(guard, at[outcome.position])
        assert not is_seen(guard, outcome.position)
    elif isinstance(outcome, PenstockError):
        raise outcome
    else:
        [written] = [one for one in at.values() if one.id == messages[0].id]
        if expected is not None:
            assert written.position == outcome
            assert expected[1] in (None, written.position - 1)
        if guard is not None:
            for one in at.values():
                if one.id != written.id and matches_guard(guard, one):
                    if is_seen(guard, one.global_position):
                        order.add(written.id, one.id)
                    else:
                        order.add(one.id, written.id)


def is_seen(guard: Guard, position: int) -> bool:
    return position <= guard.low or any(first <= position <= last for first, last in guard.seen)


def matches_guard(guard: Guard, message: Any) -> bool:
    kinds = {"copy.lent": Lent, "copy.returned": Returned}
    return message.type in kinds and matches(kinds[message.type](**message.data), guard.conditions)
