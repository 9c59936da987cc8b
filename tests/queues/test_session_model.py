"""Random calls to real sessions and to a model of them, which must agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    rule,
    run_state_machine_as_test,
)

from penstock import CommitMode, Store
from penstock.errors import (
    NothingToCommit,
    NothingToSkip,
    OffsetBeyondTail,
    SessionClosed,
    SessionFenced,
    UndecodableRecord,
)
from tests.queues.polling import retain_from

GOOD, FOREIGN = "good", "foreign"
KINDS = [
    (CommitMode.AUTO_COMMIT, False),
    (CommitMode.MANUAL_COMMIT, False),
    (CommitMode.MANUAL_COMMIT, True),
]
ANY = st.integers(0, 1000)


@dataclass
class Model:
    """A queue and its one consumer, as the guide describes them."""

    #: by offset, those removed too
    records: list[str] = field(default_factory=list)
    oldest: int = 0
    stored: int = 0
    auto: bool = True
    read_ahead: bool = False
    #: what the next poll reads
    here: int = 0
    #: what `commit()` would store
    pending: int | None = None
    #: where a seek went that is not stored yet
    sought: int | None = None
    #: whether a record that cannot be decoded was met here
    stuck: bool = False
    missed: int = 0

    @property
    def tail(self) -> int:
        return len(self.records)

    def open(self, auto: bool, read_ahead: bool) -> None:
        self.auto, self.read_ahead = auto, read_ahead
        self.here, self.pending, self.sought = self.stored, None, None
        self.stuck, self.missed = False, 0

    def poll(self) -> object:
        if self.here < self.oldest:
            self.missed += self.oldest - self.here
            self.here = self.oldest
        if self.here == self.tail:
            return None
        offset = self.here
        if self.auto:
            self.stored = max(self.stored, offset + 1)
        self.stuck = self.records[offset] is FOREIGN
        if self.stuck:
            return UndecodableRecord
        self._done(offset, moves=self.auto or self.read_ahead)
        return offset

    def skip(self) -> object:
        if not self.stuck:
            return NothingToSkip
        skipped = self.here
        self._done(skipped, moves=True)
        return skipped

    def _done(self, offset: int, moves: bool) -> None:
        self.stuck = False
        if not self.auto:
            self.pending = offset + 1
        if moves:
            self.here = offset + 1

    def commit(self, offset: int | None = None) -> object:
        if self.auto:
            return None
        if offset is None and self.pending is None:
            return NothingToCommit
        to_store = self.pending if offset is None else offset + 1
        assert to_store is not None
        if self.sought is not None:
            to_store = max(to_store, self.sought)
        if to_store > self.tail:
            return OffsetBeyondTail
        self.stored = max(to_store, self.stored if self.sought is None else 0)
        self.sought = None
        if self.pending is not None and self.pending <= to_store:
            self.pending = None
        if self.here < to_store:
            self.here, self.stuck = to_store, False
        return None

    def seek(self, offset: int | None) -> object:
        wanted = self.tail if offset is None else offset
        if wanted > self.tail:
            return OffsetBeyondTail
        self.here = max(wanted, self.oldest)
        self.stuck = False
        if self.auto:
            self.stored = self.here
        else:
            self.sought = self.pending = self.here
        return self.here - wanted

    def fetch(self, offset: int) -> object:
        if not self.oldest <= offset < self.tail:
            return None
        return UndecodableRecord if self.records[offset] is FOREIGN else offset

    def commit_offset(self, next_offset: int) -> object:
        if next_offset > self.tail:
            return OffsetBeyondTail
        self.stored = max(self.stored, next_offset)
        return None


CALLS: dict[str, tuple[Callable[[Any, Any, int], object], Callable[[Model, int], object]]] = {
    "poll": (lambda queue, session, offset: session.poll(), lambda model, offset: model.poll()),
    "commit": (
        lambda queue, session, offset: session.commit(),
        lambda model, offset: model.commit(),
    ),
    "commit one": (
        lambda queue, session, offset: session.commit(offset),
        lambda model, offset: model.commit(offset),
    ),
    "seek": (
        lambda queue, session, offset: session.seek(offset),
        lambda model, offset: model.seek(offset),
    ),
    "seek to the beginning": (
        lambda queue, session, offset: session.seek_to_beginning(),
        lambda model, offset: model.seek(0),
    ),
    "seek to the end": (
        lambda queue, session, offset: session.seek_to_end(),
        lambda model, offset: model.seek(None),
    ),
    "skip": (lambda queue, session, offset: session.skip(), lambda model, offset: model.skip()),
    "fetch": (
        lambda queue, session, offset: queue.fetch_at(offset),
        lambda model, offset: model.fetch(offset),
    ),
    "commit from outside": (
        lambda queue, session, offset: queue.commit_offset("worker", offset),
        lambda model, offset: model.commit_offset(offset),
    ),
}


class Both:
    """A queue with a session, and the model; each call goes to both."""

    def __init__(self, queue: Any, log: Store, url: str) -> None:
        self.queue, self.log, self.url = queue, log, url
        self.model = Model()
        self.history: list[str] = []
        self.offer(6)
        self.session = self.open(*KINDS[0])

    def offer(self, count: int) -> None:
        tail = self.model.tail

        found = self.queue.offer_many(range(count))

        assert found == list(range(tail, tail + count))
        self.model.records += [GOOD] * count

    def write_something_else(self) -> None:
        self.log.write_message(self.queue.stream_name, "Foreign")
        self.model.records.append(FOREIGN)

    def retain(self, number: int) -> None:
        self.model.oldest = max(self.model.oldest, number % self.model.tail)
        retain_from(self.url, self.queue, self.model.oldest)

    def open_another(self, mode: CommitMode, read_ahead: bool, *, close: bool) -> None:
        before = self.session
        if close:
            before.close()

        self.session = self.open(mode, read_ahead)

        for call in (before.poll, before.seek_to_end, before.committed_offset):
            assert outcome(call) is (SessionClosed if close else SessionFenced)

    def open(self, mode: CommitMode, read_ahead: bool) -> Any:
        self.history.append(f"open {mode.value}, {read_ahead=}")
        self.model.open(mode is CommitMode.AUTO_COMMIT, read_ahead)
        return self.queue.create_consumer("worker", mode, read_ahead=read_ahead)

    def call(self, name: str, number: int) -> None:
        offset = number % (self.model.tail + 2)  # of a record, the tail, or beyond
        self.history.append(f"{name} ({offset} of {self.model.oldest} to {self.model.tail})")
        real, model = CALLS[name]
        expected = model(self.model, offset)

        found = outcome(real, self.queue, self.session, offset)

        assert found == expected, self.history
        assert self.session.missed == self.model.missed, self.history
        assert self.session.committed_offset() == self.model.stored, self.history


class Machine(RuleBasedStateMachine):
    """Lets hypothesis choose the calls; it finds the shortest sequence that fails."""

    def __init__(self, both: Both) -> None:
        super().__init__()
        self.both = both

    @rule(count=st.integers(1, 3))
    def offer(self, count: int) -> None:
        self.both.offer(count)

    @rule()
    def write_something_else(self) -> None:
        self.both.write_something_else()

    @rule(number=ANY)
    def retain(self, number: int) -> None:
        self.both.retain(number)

    @rule(kind=st.sampled_from(KINDS), close=st.booleans())
    def open_another(self, kind: tuple[CommitMode, bool], close: bool) -> None:
        self.both.open_another(*kind, close=close)

    @rule(calls=st.lists(st.tuples(st.sampled_from(list(CALLS)), ANY), min_size=1))
    def call(self, calls: list[tuple[str, int]]) -> None:
        for name, number in calls:
            self.both.call(name, number)


def walk(both: Both, dice: Random, length: int) -> None:
    """Choose each call with the same probability, for longer than hypothesis does."""
    for _ in range(length):
        match dice.randrange(20):
            case 0:
                both.offer(dice.randint(1, 3))
            case 1:
                both.write_something_else()
            case 2 if dice.random() < 0.3:
                both.retain(dice.randrange(1000))
            case 3:
                both.open_another(*dice.choice(KINDS), close=dice.random() < 0.5)
            case _:
                both.call(dice.choice([*CALLS, "poll", "poll", "poll"]), dice.randrange(1000))


@pytest.fixture
def new_both(shared_store: Store, shared_url: str) -> Callable[[], Both]:
    """Makes an empty queue and its model."""
    return lambda: Both(shared_store.queue(f"orders-{uuid4()}"), shared_store, shared_url)


def test_sessions_do_what_the_model_does(new_both: Callable[[], Both]) -> None:
    run_state_machine_as_test(
        lambda: Machine(new_both()),  # type: ignore[arg-type]
        settings=settings(
            max_examples=25,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("seed", range(5))
def test_sessions_do_what_the_model_does_for_long(new_both: Callable[[], Both], seed: int) -> None:
    walk(new_both(), Random(seed), length=300)


def outcome(call: Callable[..., Any], *arguments: object) -> object:
    """The offset of the record, the value, or the kind of error."""
    try:
        result = call(*arguments)
    except Exception as error:
        return type(error)
    return getattr(result, "offset", result)
