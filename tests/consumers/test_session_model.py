"""Random calls to real sessions, beside a model of what sessions are, which must always agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from penstock import (
    CommitMode,
    NothingToCommit,
    NothingToSkip,
    OffsetBeyondTail,
    SessionClosed,
    SessionFenced,
    Store,
    UndecodableRecord,
)
from tests.consumers.driving import Driven, retain_from

GOOD, FOREIGN = "good", "foreign"
KINDS = [
    (CommitMode.AUTO_COMMIT, False),
    (CommitMode.MANUAL_COMMIT, False),
    (CommitMode.MANUAL_COMMIT, True),
]
ANY_OFFSET = st.integers(0, 12)


@dataclass
class Model:
    """A queue and its one consumer, as the guide tells it."""

    records: list[str] = field(default_factory=list)  # by offset; None where removed
    oldest: int = 0
    stored: int = 0
    auto: bool = True
    read_ahead: bool = False
    #: what the next poll reads
    here: int = 0
    #: what commit() would store; None: nothing
    pending: int | None = None
    #: whether a seek has not been stored yet
    sought: int | None = None
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

    def commit_offset(self, next_offset: int) -> object:
        if next_offset > self.tail:
            return OffsetBeyondTail
        self.stored = max(self.stored, next_offset)
        return None


class Sessions(RuleBasedStateMachine):
    """One queue, one consumer id, and whatever may happen to it."""

    def __init__(self, queue: Any, log: Store, url: str) -> None:
        super().__init__()
        self.queue, self.log, self.url = queue, log, url
        self.model = Model()
        self.fenced: Any = None

    @initialize(count=st.integers(0, 6), kind=st.sampled_from(KINDS))
    def begin(self, count: int, kind: tuple[CommitMode, bool]) -> None:
        self.queue.offer_many(range(count))
        self.model.records += [GOOD] * count
        self.open(kind)

    @rule(count=st.integers(1, 3))
    def offer(self, count: int) -> None:
        tail = self.model.tail

        found = self.queue.offer_many(range(count))

        assert found == list(range(tail, tail + count))
        self.model.records += [GOOD] * count

    @rule()
    def somebody_writes_something_else(self) -> None:
        self.log.write_message(self.queue.stream_name, "Foreign")
        self.model.records.append(FOREIGN)

    @precondition(lambda self: self.model.tail > self.model.oldest + 1)
    @rule(data=st.data())
    def retain(self, data: st.DataObject) -> None:
        oldest = data.draw(st.integers(self.model.oldest + 1, self.model.tail - 1))
        retain_from(self.url, self.queue, oldest)
        self.model.oldest = oldest

    @rule(kind=st.sampled_from(KINDS))
    def restart(self, kind: tuple[CommitMode, bool]) -> None:
        self.session.close()
        assert outcome(self.session.poll) is SessionClosed
        self.open(kind)

    @rule(kind=st.sampled_from(KINDS))
    def fence(self, kind: tuple[CommitMode, bool]) -> None:
        self.fenced = self.session
        self.open(kind)

    @precondition(lambda self: self.fenced is not None)
    @rule()
    def use_the_fenced_one(self) -> None:
        fenced, self.fenced = self.fenced, None
        for call in (fenced.poll, fenced.seek_to_end, fenced.committed_offset):
            assert outcome(call) is SessionFenced

    @rule(times=st.integers(1, 3))
    def poll(self, times: int) -> None:
        for _ in range(times):
            self.agree(lambda: self.session.poll(), self.model.poll())
            assert self.session.missed == self.model.missed

    @rule()
    def commit(self) -> None:
        self.agree(lambda: self.session.commit(), self.model.commit())

    @rule(offset=ANY_OFFSET)
    def commit_one(self, offset: int) -> None:
        self.agree(lambda: self.session.commit(offset), self.model.commit(offset))

    @rule(offset=ANY_OFFSET)
    def seek(self, offset: int) -> None:
        self.agree(lambda: self.session.seek(offset), self.model.seek(offset))

    @rule()
    def seek_to_beginning(self) -> None:
        self.agree(lambda: self.session.seek_to_beginning(), self.model.seek(0))

    @rule()
    def seek_to_end(self) -> None:
        self.agree(lambda: self.session.seek_to_end(), self.model.seek(None))

    @rule()
    def skip(self) -> None:
        self.agree(lambda: self.session.skip(), self.model.skip())

    @rule(next_offset=ANY_OFFSET)
    def commit_from_outside(self, next_offset: int) -> None:
        self.agree(
            lambda: self.queue.commit_offset("worker", next_offset),
            self.model.commit_offset(next_offset),
        )

    @rule(offset=ANY_OFFSET)
    def fetch(self, offset: int) -> None:
        there = self.model.oldest <= offset < self.model.tail
        foreign = there and self.model.records[offset] is FOREIGN
        expected = UndecodableRecord if foreign else offset if there else None

        self.agree(lambda: self.queue.fetch_at(offset), expected)

    def open(self, kind: tuple[CommitMode, bool]) -> None:
        mode, read_ahead = kind
        self.session = self.queue.create_consumer("worker", mode, read_ahead=read_ahead)
        self.model.open(mode is CommitMode.AUTO_COMMIT, read_ahead)

    def agree(self, call: Callable[[], object], expected: object) -> None:
        assert outcome(call) == expected
        assert self.session.committed_offset() == self.model.stored


def outcome(call: Callable[[], Any]) -> object:
    """The offset of the record, the value, or the kind of error."""
    try:
        result = call()
    except Exception as error:
        return type(error)
    return getattr(result, "offset", result)


@pytest.mark.parametrize("kind", ["blocking", "async"])
def test_sessions_do_what_the_model_does(
    kind: str, shared_store: Store, driven_store: Driven, shared_url: str
) -> None:
    def machine() -> Sessions:
        name = f"orders-{uuid4()}"
        if kind == "blocking":
            return Sessions(shared_store.queue(name), shared_store, shared_url)
        queue = Driven(driven_store.queue(name), driven_store._loop)
        return Sessions(queue, shared_store, shared_url)

    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        machine,
        settings=settings(
            max_examples=40 if kind == "blocking" else 10,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
