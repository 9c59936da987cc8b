"""A decider: past events and a command give new events. `store.decide` is tested both ways."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import penstock
from penstock import ConcurrentAppendError, Decider, Store
from penstock.errors import ValidationError
from tests import both_ways
from tests.groups.school import CourseClosed, CourseCreated, DeviceSeen, UserJoinedCourse

store = both_ways.store


@pytest.fixture
def rival(database_url: str) -> Iterator[Store]:
    """Another client of the same database, which a decider calls while it decides."""
    with penstock.connect(database_url) as store:
        yield store


class CourseFull(Exception):
    pass


def evolve(seats: int, event: object) -> int:
    match event:
        case CourseCreated():
            return 2
        case UserJoinedCourse():
            return seats - 1
        case CourseClosed():
            return 0
    return seats


def decide(seats: int, command: UserJoinedCourse) -> Iterator[UserJoinedCourse]:
    if seats <= 0:
        raise CourseFull
    yield command


ENROLMENT = Decider[int, UserJoinedCourse](initial=0, evolve=evolve, decide=decide)
CREATED = CourseCreated(course_name="Algebra")
JOE, JAKE, MARY = (
    UserJoinedCourse(course_name="Algebra", user_id=user) for user in ("joe", "jake", "mary")
)


def test_what_is_given_and_what_is_commanded_make_what_happens() -> None:
    ENROLMENT.given(CREATED).when(JOE).then(JOE)


def test_a_command_may_be_refused() -> None:
    ENROLMENT.given(CREATED, JOE, JAKE).when(MARY).then_raises(CourseFull)


def test_a_wrong_expectation_is_reported() -> None:
    with pytest.raises(AssertionError, match="expected"):
        ENROLMENT.given(CREATED).when(JOE).then(JAKE)
    with pytest.raises(AssertionError, match="CourseFull"):
        ENROLMENT.given().when(JOE).then(JOE)
    with pytest.raises(AssertionError, match="expected CourseFull"):
        ENROLMENT.given(CREATED).when(JOE).then_raises(CourseFull)


def test_a_command_is_decided_on_the_log_and_appended(store: Store) -> None:
    store.append(CREATED)
    conditions = [
        *CourseCreated.to_conditions(course_name="Algebra"),
        *UserJoinedCourse.to_conditions(course_name="Algebra"),
    ]

    for command in (JOE, JAKE):
        assert store.decide(ENROLMENT, command, conditions) is not None

    with pytest.raises(CourseFull):
        store.decide(ENROLMENT, MARY, conditions)
    assert ENROLMENT.state(store.read(conditions)[0]) == 0


def test_nothing_to_append_is_nothing(store: Store) -> None:
    idle = Decider[int, UserJoinedCourse](
        initial=0, evolve=evolve, decide=lambda seats, command: []
    )

    assert store.decide(idle, JOE, CourseCreated.to_conditions(course_name="Algebra")) is None


def test_a_conflict_is_decided_again_and_given_up_in_the_end(store: Store, rival: Store) -> None:
    store.append(CREATED)
    decided = []

    def interrupted(seats: int, command: UserJoinedCourse) -> list[UserJoinedCourse]:
        decided.append(seats)
        rival.append(CourseClosed(course_name="Algebra"))  # another writer, each time
        return [command]

    unlucky = Decider[int, UserJoinedCourse](initial=0, evolve=evolve, decide=interrupted)
    conditions = [
        *CourseCreated.to_conditions(course_name="Algebra"),
        *CourseClosed.to_conditions(course_name="Algebra"),
    ]

    with pytest.raises(ConcurrentAppendError):
        store.decide(unlucky, JOE, conditions, attempts=3)

    assert decided == [2, 0, 0]


def test_what_one_command_made_of_the_state_is_not_there_for_the_next(store: Store) -> None:
    def join(members: list[str], event: UserJoinedCourse) -> list[str]:
        members.append(event.user_id)
        return members

    def decide_once(members: list[str], command: UserJoinedCourse) -> list[UserJoinedCourse]:
        return [] if command.user_id in members else [command]

    members = Decider[list[str], UserJoinedCourse](initial=[], evolve=join, decide=decide_once)
    in_history = UserJoinedCourse(course_name="History", user_id="joe")
    for joining in (JOE, JAKE, in_history):  # to decide on jake, joe's joining is read
        conditions = UserJoinedCourse.to_conditions(course_name=joining.course_name)
        assert store.decide(members, joining, conditions) is not None

    assert members.initial == []


def test_in_a_transaction_a_conflict_is_raised_and_not_tried_again(
    store: Store, rival: Store
) -> None:
    store.append(CREATED)
    attempts = []

    def too_late(seats: int, command: UserJoinedCourse) -> list[UserJoinedCourse]:
        attempts.append(seats)
        rival.append(JAKE)
        return [command]

    late = Decider[int, UserJoinedCourse](initial=0, evolve=evolve, decide=too_late)
    conditions = UserJoinedCourse.to_conditions(course_name="Algebra")
    with pytest.raises(ConcurrentAppendError), store.transaction() as transaction:
        transaction.decide(late, JOE, conditions)

    assert len(attempts) == 1


@pytest.mark.parametrize("on", ["store", "transaction"])
def test_what_is_no_decider_is_refused(store: Store, on: str) -> None:
    with store.transaction() as transaction:
        decides = store if on == "store" else transaction
        with pytest.raises(ValidationError, match="decider must be a Decider"):
            decides.decide(decide, JOE, JOE.to_conditions(user_id="joe"))  # type: ignore[arg-type]


def test_conditions_are_read_again_though_they_come_from_an_iterator(
    store: Store, rival: Store
) -> None:
    store.append(CREATED)
    others = iter([JAKE])

    def interrupted(seats: int, command: UserJoinedCourse) -> list[UserJoinedCourse]:
        rival.append(list(others) or [DeviceSeen(device_id="a")])
        return [command]

    unlucky = Decider[int, UserJoinedCourse](initial=0, evolve=evolve, decide=interrupted)

    conditions = iter(UserJoinedCourse.to_conditions(course_name="Algebra"))
    assert store.decide(unlucky, JOE, conditions) is not None


@pytest.mark.parametrize("name", ["evolve", "decide"])
@pytest.mark.parametrize("wrong", [None, asyncio.sleep])
def test_a_decider_is_made_of_plain_functions(name: str, wrong: object) -> None:
    functions: dict[str, Any] = {"evolve": evolve, "decide": decide, name: wrong}

    with pytest.raises(ValidationError, match=f"{name} must be a plain function"):
        Decider(initial=0, **functions)
