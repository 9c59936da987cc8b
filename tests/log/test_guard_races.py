"""Sixteen workers enrol students in courses of twenty seats: never a 21st seat, no attempt lost."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

import penstock
from penstock import AsyncStore, Decider, Message, QueryCondition, Store, TypedMessage
from tests.groups.school import UserJoinedCourse

WORKERS = 16
SEATS = 20


def enrol(taken: int, command: UserJoinedCourse) -> Iterator[UserJoinedCourse]:
    if taken < SEATS:
        yield command


SEAT = Decider[int, UserJoinedCourse](
    initial=0, evolve=lambda taken, event: taken + 1, decide=enrol
)


@pytest.fixture
def stores(database_url: str) -> Iterator[list[Store]]:
    """A store for each worker, with a connection of its own."""
    with ExitStack() as stack:
        yield [stack.enter_context(penstock.connect(database_url)) for _ in range(WORKERS)]


@pytest.fixture
def one_store(database_url: str) -> Iterator[list[Store]]:
    """One store for all workers, whose calls meet."""
    with penstock.connect(database_url) as store:
        yield [store] * WORKERS


def attempt(store: Store, course: str, user: str) -> bool:
    """Enrol somebody if there is a seat, and tell whether there was."""
    return (
        store.decide(
            SEAT,
            UserJoinedCourse(course_name=course, user_id=user),
            UserJoinedCourse.to_conditions(course_name=course),
            attempts=200,
        )
        is not None
    )


def race(
    stores: list[Store], courses: list[str], attempts: int
) -> tuple[Counter[str], Counter[str]]:
    """Let all workers enrol; return how many attempts each course saw, and how many succeeded."""

    def work(number: int) -> list[tuple[str, bool]]:
        chance = random.Random(number)
        chosen = [chance.choice(courses) for _ in range(attempts)]
        return [
            (course, attempt(stores[number], course, f"{number}/{made}"))
            for made, course in enumerate(chosen)
        ]

    with ThreadPoolExecutor(WORKERS) as threads:
        made = [one for each in threads.map(work, range(WORKERS)) for one in each]
    return Counter(course for course, _ in made), Counter(course for course, got in made if got)


def race_and_check(stores: list[Store], courses: int, attempts: int, prefix: str = "") -> int:
    """Let all workers enrol, and return how many attempts that were."""
    names = [f"{prefix}course {number}" for number in range(courses)]

    tried, enrolled = race(stores, names, attempts)

    assert sum(tried.values()) == WORKERS * attempts
    for name in names:
        assert enrolled[name] == min(SEATS, tried[name])
        assert seats_taken(stores[0], name) == enrolled[name]
    return sum(tried.values())


def seats_taken(store: Store, course: str) -> int:
    return len(store.read(UserJoinedCourse.to_conditions(course_name=course))[0])


@pytest.mark.parametrize(
    ("courses", "attempts"), [(2, 20), (12, 20)], ids=["few courses", "many courses"]
)
def test_never_a_21st_seat_and_no_attempt_is_lost(
    stores: list[Store], courses: int, attempts: int
) -> None:
    race_and_check(stores, courses, attempts)


@pytest.mark.parametrize(
    ("courses", "attempts"), [(2, 20), (12, 20)], ids=["few courses", "many courses"]
)
def test_never_a_21st_seat_where_calls_meet(
    one_store: list[Store], courses: int, attempts: int
) -> None:
    race_and_check(one_store, courses, attempts)


async def test_never_a_21st_seat_for_tasks_whose_calls_meet(async_store: AsyncStore) -> None:
    async def enrol(user: int) -> bool:
        command = UserJoinedCourse(course_name="Algebra", user_id=str(user))
        conditions = UserJoinedCourse.to_conditions(course_name="Algebra")
        return await async_store.decide(SEAT, command, conditions, attempts=200) is not None

    enrolled = await asyncio.gather(*[enrol(user) for user in range(60)])

    taken, _ = await async_store.read(UserJoinedCourse.to_conditions(course_name="Algebra"))
    assert (sum(enrolled), len(taken)) == (SEATS, SEATS)


@pytest.mark.parametrize("shared", [True, False], ids=["one store", "a store for each"])
def test_no_decision_is_made_on_an_old_state(
    database_url: str, stores: list[Store], shared: bool
) -> None:
    course = UserJoinedCourse.to_conditions(course_name="Algebra")

    def join_as(joined: list[str], command: str) -> list[UserJoinedCourse]:
        return [UserJoinedCourse(course_name="Algebra", user_id=str(len(joined)))]

    counted = Decider[list[str], str](
        initial=[],
        evolve=lambda joined, event: [*joined, event.user_id],
        decide=join_as,
        name="counted",
        snapshot_every=7,
    )
    with (
        penstock.connect(database_url, pool_max_size=WORKERS) as one,
        ThreadPoolExecutor(WORKERS) as threads,
    ):

        def work(number: int) -> None:
            for _ in range(10):
                (one if shared else stores[number]).decide(counted, "", course, attempts=500)

        list(threads.map(work, range(WORKERS)))

    messages, _ = stores[0].read(course)
    assert [one.data["user_id"] for one in messages] == [str(n) for n in range(WORKERS * 10)]


@pytest.mark.chaos
def test_never_a_21st_seat_for_as_long_as_it_lasts(
    stores: list[Store], chaos_seconds: float
) -> None:
    race_for(stores, chaos_seconds)


@pytest.mark.chaos
def test_never_a_21st_seat_where_calls_meet_for_as_long_as_it_lasts(
    one_store: list[Store], chaos_seconds: float
) -> None:
    race_for(one_store, chaos_seconds)


def race_for(stores: list[Store], seconds: float) -> None:
    end, round, made = time.monotonic() + seconds, 0, 0
    while round == 0 or time.monotonic() < end:
        made += race_and_check(stores, random.choice([1, 5, 40]), 20, f"round {round}, ")
        round += 1
    print(f"{made} attempts in {round} rounds")


def decide_twice_at_once(store: Store) -> None:
    """Let two take the last seat: the second decides while the first is not committed."""
    conditions = UserJoinedCourse.to_conditions(course_name="Algebra")
    store.append(
        [UserJoinedCourse(course_name="Algebra", user_id=str(n)) for n in range(SEATS - 1)]
    )
    _, guard = store.read(conditions)
    with ThreadPoolExecutor(1) as threads, store.transaction() as first:
        first.append(UserJoinedCourse(course_name="Algebra", user_id="joe"), guard)
        second = threads.submit(
            store.append, UserJoinedCourse(course_name="Algebra", user_id="jake"), guard
        )
        wait_until_waiting_or_done(store, second.done)
    second.result()


def wait_until_waiting_or_done(store: Store, done: Callable[[], bool]) -> None:
    with psycopg.connect(store.settings.database_url or "") as connection:
        while not done():
            row = connection.execute(
                "select count(*) from pg_locks where not granted and locktype = 'advisory'"
            ).fetchone()
            connection.rollback()
            if row != (0,):
                return


def test_of_two_that_take_the_last_seat_at_once_one_is_refused(store: Store) -> None:
    with pytest.raises(penstock.ConcurrentAppendError):
        decide_twice_at_once(store)

    assert seats_taken(store, "Algebra") == SEATS


def test_without_the_boundary_locks_there_would_be_a_21st_seat(
    store: Store, database_url: str
) -> None:
    with psycopg.connect(database_url) as connection:
        for function in ("penstock.append_one", "penstock.lock_keys"):
            take_out_boundary_locks(connection, function)

    decide_twice_at_once(store)

    assert seats_taken(store, "Algebra") == SEATS + 1


def take_out_boundary_locks(connection: psycopg.Connection[Any], function: str) -> None:
    row = connection.execute("select pg_get_functiondef(%s::regproc)", (function,)).fetchone()
    assert row is not None
    without, replaced = re.subn(r"\bpg_advisory_xact_lock(_shared)?\(key\)", "null", row[0])
    assert replaced == 2
    connection.execute(without.encode())


def test_guards_on_several_attributes_in_any_order_do_not_block_each_other_for_good(
    stores: list[Store],
) -> None:
    class Swapped(TypedMessage, type="seat.swapped"):
        one: str
        other: str

    def swap(number: int) -> int:
        chance, store = random.Random(number), stores[number]

        @penstock.retry(attempts=100)
        def decide(one: str, other: str) -> None:
            _, guard = store.read(
                [
                    *Swapped.to_conditions(one=one, other=other),
                    QueryCondition("seat.swapped", "one", other),
                    QueryCondition("seat.swapped", "other", one),
                ]
            )
            store.append([Swapped(one=one, other=other), Message("note", {"n": number})], guard)

        for _ in range(10):
            decide(*chance.sample(["a", "b", "c", "d"], 2))
        return 10

    with ThreadPoolExecutor(WORKERS) as threads:
        done = list(threads.map(swap, range(WORKERS)))

    messages, _ = stores[0].read([QueryCondition("seat.swapped")])
    assert len(messages) == sum(done)
