"""Whatever several workers do, each partition gets what a simple model says, in order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import Claim, Store, TypedMessage, new_id
from penstock.errors import StaleClaim
from penstock.transaction import Transaction
from tests.groups.school import (
    SCHOOL,
    CourseClosed,
    CourseCreated,
    UserJoinedCourse,
    UserRegistered,
    positions,
)
from tests.outbox.outboxes import sql

BATCH = 3
COURSES = st.sampled_from(["Algebra", "History"])
USERS = st.sampled_from(["joe", "jake"])

MESSAGES = st.one_of(
    st.builds(CourseCreated, course_name=COURSES),
    st.builds(UserRegistered, user_id=USERS, name=st.just("x")),
    st.builds(UserJoinedCourse, course_name=COURSES, user_id=USERS),
    st.builds(UserJoinedCourse, course_name=COURSES, user_id=USERS),
    st.builds(CourseClosed, course_name=COURSES),
)

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(MESSAGES, min_size=1, max_size=4)),
        st.tuples(st.just("write late"), st.lists(MESSAGES, min_size=1, max_size=2)),
        st.tuples(st.just("commit"), st.none()),
        st.tuples(st.just("roll back"), st.none()),
        st.tuples(st.just("claim"), st.none()),
        st.tuples(st.just("claim"), st.none()),
        st.tuples(st.just("ack"), st.integers(0, 5)),
        st.tuples(st.just("ack"), st.integers(0, 5)),
        st.tuples(st.just("ack first"), st.integers(0, 5)),
        st.tuples(st.just("release"), st.integers(0, 5)),
        st.tuples(st.just("reset"), st.none()),
    ),
    max_size=40,
)


def attributes(message: TypedMessage) -> dict[str, str]:
    """What of the group's attributes a message carries."""
    return {
        name: getattr(message, name)
        for name in ("course_name", "user_id")
        if name in message.payload_attribute_names
    }


@dataclass
class Model:
    """The group as the specification has it: it looks through the whole log for each claim."""

    #: all committed messages by position, with what of the group's attributes they carry
    log: dict[int, dict[str, str]] = field(default_factory=dict)
    acknowledged: dict[str, int] = field(default_factory=dict)
    claimed: set[str] = field(default_factory=set)

    def pending(self, until: float) -> dict[str, list[int]]:
        """What each partition that is not claimed has not handled, up to a position."""
        visible = {at: has for at, has in sorted(self.log.items()) if at <= until}
        partitions = [has for has in visible.values() if len(has) == 2]
        return {
            key: found
            for has in partitions
            if (key := "|".join(f"{name}:{has[name]}" for name in sorted(has))) not in self.claimed
            and (found := [
                at
                for at, other in visible.items()
                if at > self.acknowledged.get(key, 0)
                and all(has[name] == value for name, value in other.items())
            ])
        }  # fmt: skip


@dataclass
class Driver:
    """Does each step to the store and to the model, and compares what they say."""

    store: Store
    model: Model = field(default_factory=Model)
    claims: list[Claim] = field(default_factory=list)
    writer: Transaction | None = None
    writing: dict[int, dict[str, str]] = field(default_factory=dict)

    def step(self, what: str, how: Any) -> None:
        getattr(self, what.replace(" ", "_"))(how)

    def append(self, messages: list[TypedMessage]) -> None:
        appended = self.store.append([one.with_id(new_id()) for one in messages])
        self.model.log.update(zip(appended.positions, map(attributes, messages), strict=True))

    def write_late(self, messages: list[TypedMessage]) -> None:
        self.writer = self.writer or self.store.begin_transaction()
        appended = self.writer.append([one.with_id(new_id()) for one in messages])
        self.writing.update(zip(appended.positions, map(attributes, messages), strict=True))

    def commit(self, _: None) -> None:
        if self.writer is not None:
            self.writer.commit()
            self.model.log.update(self.writing)
            self.writer, self.writing = None, {}

    def roll_back(self, _: None) -> None:
        if self.writer is not None:
            self.writer.rollback()
            self.writer, self.writing = None, {}

    def claim(self, _: None) -> Claim | None:
        pending = self.model.pending(min(self.writing, default=float("inf")) - 1)
        claim = self.store.groups.claim_next(
            "group",
            partition_by=["course_name", "user_id"],
            handled_types=SCHOOL,
            batch_size=BATCH,
        )
        if claim is None:
            assert pending == {}
            return None
        assert claim.partition_key in pending
        assert positions(claim) == pending[claim.partition_key][: len(claim.messages)]
        assert positions(claim)[0] == min(found[0] for found in pending.values())
        if not claim.replaying:
            assert len(claim.messages) == min(BATCH, len(pending[claim.partition_key]))
        self.claims.append(claim)
        self.model.claimed.add(claim.partition_key)
        return claim

    def ack(self, which: int) -> None:
        self._acknowledge(which, -1)

    def ack_first(self, which: int) -> None:
        self._acknowledge(which, 0)

    def _acknowledge(self, which: int, last: int) -> None:
        if self.claims:
            claim = self.claims.pop(which % len(self.claims))
            self.store.groups.ack(claim, positions(claim)[last])
            self.model.acknowledged[claim.partition_key] = positions(claim)[last]
            self.model.claimed.remove(claim.partition_key)

    def release(self, which: int) -> None:
        if self.claims:
            claim = self.claims.pop(which % len(self.claims))
            self.store.groups.release(claim)
            self.model.claimed.remove(claim.partition_key)

    def reset(self, _: None) -> None:
        self.store.groups.reset("group")
        for claim in self.claims:
            with pytest.raises(StaleClaim):
                self.store.groups.ack(claim)
        self.claims.clear()
        self.model.claimed.clear()
        self.model.acknowledged.clear()

    def finish(self) -> None:
        """Handle all that is left."""
        self.commit(None)
        while self.claims:
            self.release(0)
        while self.claim(None) is not None:
            self.ack(0)


@pytest.fixture(params=["hashes", "hashes that collide"])
def school(store: Store, request: pytest.FixtureRequest) -> Store:
    store.declare(*SCHOOL)
    if request.param != "hashes":
        sql(
            store,
            "create or replace function penstock.feed_key(projection text[]) returns bigint"
            " language sql immutable parallel safe as $$ select 7::bigint $$",
        )
    return store


@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=STEPS)
def test_each_partition_gets_what_the_model_says(
    school: Store, database_url: str, steps: list[tuple[str, Any]]
) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("truncate message_store.messages, penstock.message_attributes")
    school.groups.clear()
    school.groups.register("group")
    driver = Driver(school)

    try:
        for what, how in steps:
            driver.step(what, how)
        driver.finish()
    finally:
        driver.roll_back(None)
