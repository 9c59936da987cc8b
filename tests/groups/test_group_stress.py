"""Eight worker processes, some killed, some hung: each partition is handled in order, all of it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise

import psycopg
import pytest

from penstock import QueryCondition, Store, TypedMessage
from tests.groups.school import (
    SCHOOL,
    CourseClosed,
    CourseCreated,
    UserJoinedCourse,
    UserRegistered,
)
from tests.racing import wait_until

WORKERS = 8


@contextmanager
def workers(url: str) -> Iterator[None]:
    """Keep worker processes alive meanwhile; at the end they stop in good order."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.groups.stressed_workers", url, str(WORKERS)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.PIPE,
        text=True,
    ) as supervisor:
        try:
            yield
        finally:
            supervisor.terminate()
            _, complaints = supervisor.communicate(timeout=60)
    assert (supervisor.returncode, complaints) == (0, "")


@dataclass
class Trouble:
    """Does harm to workers that hold a claim."""

    connection: psycopg.Connection
    chance: random.Random
    store: Store

    def victim(self) -> tuple[int, str]:
        """Find a claim, and return its worker's process and the token."""
        while True:
            row = self.connection.execute(
                "select claimed_by, token::text from penstock.partition_states"
                " where token is not null and due > clock_timestamp()"
                " order by random() limit 1"
            ).fetchone()
            if row is not None:
                return int(row[0].split(":")[1]), row[1]
            if not self._has_work():
                self.store.append(UserJoinedCourse(course_name="course a0", user_id="user a0"))

    def _has_work(self) -> bool:
        pending = "select from penstock.partition_states where next_position is not null limit 1"
        return self.connection.execute(pending).fetchone() is not None

    def kill(self) -> None:
        pid, _ = self.victim()
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def hang(self, url: str) -> None:
        """Stop a worker in the middle of a claim until somebody else has taken the claim over."""
        pid, token = self.victim()
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            try:
                wait_until(
                    url,
                    "select not exists"
                    " (select from penstock.partition_states where token = %s::uuid)",
                    (token,),
                )
            finally:
                os.kill(pid, signal.SIGCONT)


def some_messages(chance: random.Random, house: str, count: int) -> list[TypedMessage]:
    """Messages with one attribute and with both, of partitions old and new."""

    def course() -> str:
        return f"course {house}{chance.randrange(6)}"

    def user() -> str:
        return f"user {house}{chance.randrange(6)}"

    return [
        chance.choice(
            [
                CourseCreated(course_name=course()),
                UserRegistered(user_id=user(), name="x"),
                CourseClosed(course_name=course()),
                UserJoinedCourse(course_name=course(), user_id=user()),
                UserJoinedCourse(course_name=course(), user_id=user()),
                UserJoinedCourse(course_name=course(), user_id=user()),
            ]
        )
        for _ in range(count)
    ]


def expected(store: Store) -> dict[str, list[int]]:
    """Which messages each partition has, by the specification's own rule."""
    log = []
    for one in store.read([QueryCondition(kind.message_type) for kind in SCHOOL])[0]:
        has = {name: one.data[name] for name in ("course_name", "user_id") if name in one.data}
        log.append((one.global_position, has))
    partitions = {tuple(sorted(has.items())) for _, has in log if len(has) == 2}
    return {
        "|".join(f"{name}:{value}" for name, value in partition): [
            at
            for at, has in log
            if all(dict(partition)[name] == value for name, value in has.items())
        ]
        for partition in partitions
    }


def outcome(store: Store) -> dict[str, list[int]]:
    """What was handled for each partition, in the order in which it was committed."""
    handled = defaultdict(list)
    for message in store.read_category("message.handled"):
        handled[message.data["partition_key"]].append(message.data["source"])
    return handled


def stress(store: Store, url: str, seed: int, seconds: float, rounds: int) -> None:
    chance = random.Random(seed)
    store.declare(*SCHOOL)
    store.groups.register("group")
    end = time.monotonic() + seconds
    with psycopg.connect(url, autocommit=True) as connection, workers(url):
        trouble = Trouble(connection, chance, store)
        number = 0
        while number < rounds or time.monotonic() < end:
            # one commits after its neighbour; nobody may wait for both, since this thread is both
            with store.transaction() as late:
                late.append(some_messages(chance, "a", 4))
                store.append(some_messages(chance, "b", 4))
            if number % 3 == 2:
                trouble.hang(url)
            else:
                trouble.kill()
            number += 1
        wait_until(
            url,
            "select count(*) = 0 and (select max(routed_to) from penstock.group_progress) >= %s"
            " from penstock.partition_states where next_position is not null or token is not null",
            (store.read([QueryCondition(kind.message_type) for kind in SCHOOL])[1].low,),
        )


def check(store: Store) -> None:
    handled, wanted = outcome(store), expected(store)
    assert handled.keys() == wanted.keys()
    for key, sources in handled.items():
        assert all(earlier < later for earlier, later in pairwise(sources)), key
        assert sources == wanted[key], key
    assert store.groups.parked("group") == []


def test_killed_and_hung_workers_lose_nothing_and_repeat_nothing(
    store: Store, database_url: str
) -> None:
    stress(store, database_url, seed=1, seconds=0, rounds=9)

    check(store)


@pytest.mark.chaos
def test_it_lasts(
    store: Store, database_url: str, chaos_seconds: float, request: pytest.FixtureRequest
) -> None:
    seed = request.config.getoption("--chaos-seed") or time.time_ns()
    print(f"--chaos-seed={seed}")

    stress(store, database_url, seed=int(seed), seconds=chaos_seconds, rounds=1)

    check(store)
