"""An operator removes a group: at once for everybody, and its rows in short transactions."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from penstock import Claim, Store
from penstock.errors import GroupNotFound
from penstock.groups.operations import Leftover, delete_leftover
from tests import both_ways
from tests.groups.school import (
    CourseClosed,
    CourseCreated,
    DeviceRemoved,
    DeviceSeen,
    UserJoinedCourse,
    claim_device,
    claim_student,
)
from tests.racing import wait_until_it_waits

store = both_ways.store

TABLES = (
    "consumer_groups", "group_progress", "group_types", "group_feeds", "partitions",
    "partition_states", "claim_cursors", "group_replays", "feed_partitions", "group_fanouts",
    "group_rechecks", "removed_groups",
)  # fmt: skip


def left(url: str) -> dict[str, int]:
    """The tables of groups that have rows, and how many."""
    with psycopg.connect(url) as connection:
        counts = {
            table: connection.execute(f"select count(*) from penstock.{table}".encode()).fetchone()
            for table in TABLES
        }
    return {table: row[0] for table, row in counts.items() if row is not None and row[0]}


@pytest.fixture
def claim(store: Store) -> Claim:
    """A group with four partitions of devices, one of them claimed."""
    store.groups.register("group")
    store.append([DeviceSeen(device_id=device) for device in "abcd"])
    claim = claim_device(store, types=[DeviceSeen])
    assert claim is not None
    return claim


@pytest.fixture
def school(store: Store) -> Store:
    """A group with partitions of two attributes that was reset and has routed everything again."""
    store.groups.register("group")
    joined = [UserJoinedCourse(course_name=c, user_id=u) for c in "ABC" for u in "xyz"]
    store.append([*(CourseCreated(course_name=c) for c in "ABC"), *joined])
    store.append([CourseClosed(course_name=c) for c in "ABC"])
    for _ in range(3):
        claim = claim_student(store)
        assert claim is not None
        store.groups.ack(claim)
    store.groups.reset("group")
    claim_student(store)
    return store


@pytest.mark.parametrize("batch_size", [1, 2, 10_000])
def test_nothing_of_it_is_left(school: Store, database_url: str, batch_size: int) -> None:
    before = left(database_url)

    school.groups.remove("group", batch_size=batch_size)

    assert before["feed_partitions"] == 18
    assert before["group_replays"] == 3
    assert left(database_url) == {}


@pytest.mark.usefixtures("claim")
def test_the_others_stay(store: Store, database_url: str) -> None:
    before = left(database_url)
    store.groups.register("other")
    claim_device(store, types=[DeviceSeen], group_id="other")

    store.groups.remove("other", batch_size=2)

    assert left(database_url) == before


def test_its_claims_have_ended(store: Store, claim: Claim) -> None:
    store.groups.remove("group")

    for call in (store.groups.ack, store.groups.release, store.groups.extend):
        with pytest.raises(GroupNotFound, match="group: it was removed"):
            call(claim)
    with pytest.raises(GroupNotFound):
        claim_device(store)


@pytest.mark.usefixtures("claim")
def test_it_does_not_hold_retention_back(store: Store) -> None:
    held = store.admin.retain("device.seen", keep_count=1)

    store.groups.remove("group")

    assert held.removed == 0
    assert store.admin.retain("device.seen", keep_count=1).removed == 3


def test_a_group_of_the_same_name_is_another_one(store: Store, claim: Claim) -> None:
    store.groups.ack(claim)
    store.groups.remove("group")

    store.groups.register("group")

    handled = []
    while again := claim_device(store, types=[DeviceSeen]):
        handled += [one.data["device_id"] for one in again.messages]
        store.groups.ack(again)
    assert handled == list("abcd")


def test_a_worker_that_runs_ends_with_an_error(way: Any, store: Store) -> None:
    store.append(DeviceSeen(device_id="a"))
    worker = way.Worker(
        store,
        "group",
        lambda claim: store.groups.remove("group"),
        partition_by="device_id",
        handled_types=[DeviceSeen],
    )

    with pytest.raises(GroupNotFound):
        worker.run()

    assert store.groups.list() == []


@pytest.mark.usefixtures("claim")
def test_a_removal_that_was_cut_short_is_finished_by_the_next(
    store: Store, database_url: str
) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("select penstock.remove_consumer_group('group')")
    store.run(delete_leftover(Leftover(), 2))
    gone_at_once = store.groups.list()

    store.groups.register("other")
    store.groups.remove("other")

    assert gone_at_once == []
    assert left(database_url) == {}


class TestMeanwhile:
    """What another transaction does is done before the removal, or refused after it."""

    @pytest.fixture
    def other(self, database_url: str) -> Iterator[psycopg.Connection]:
        with psycopg.connect(database_url) as connection:
            yield connection

    @pytest.fixture
    def threads(self) -> Iterator[ThreadPoolExecutor]:
        with ThreadPoolExecutor(1) as threads:
            yield threads

    @pytest.mark.usefixtures("claim")
    def test_what_is_being_routed_is_removed_too(
        self,
        store: Store,
        database_url: str,
        other: psycopg.Connection,
        threads: ThreadPoolExecutor,
    ) -> None:
        store.append([DeviceSeen(device_id=device) for device in "efgh"])
        other.execute(
            "select penstock.claim_next('group', '{device_id}', '{device.seen}', 'w-2')"
        )  # which routes

        removal = threads.submit(store.groups.remove, "group")
        wait_until_it_waits(database_url, removal)
        other.commit()
        removal.result()

        assert left(database_url) == {}

    def test_an_ack_under_way_leaves_no_state_behind(
        self,
        store: Store,
        claim: Claim,
        database_url: str,
        other: psycopg.Connection,
        threads: ThreadPoolExecutor,
    ) -> None:
        other.execute(
            "select penstock.ack('group', %s, %s, %s)",
            (claim.offset_id, claim.messages[-1].global_position, claim.token),
        )

        removal = threads.submit(store.groups.remove, "group")
        wait_until_it_waits(database_url, removal)
        other.commit()
        removal.result()

        assert left(database_url) == {}

    @pytest.mark.parametrize("call", ["reset", "remove", "claim"])
    @pytest.mark.usefixtures("claim")
    def test_who_waits_for_a_removal_finds_no_group(
        self,
        store: Store,
        database_url: str,
        other: psycopg.Connection,
        threads: ThreadPoolExecutor,
        call: str,
    ) -> None:
        store.declare(DeviceRemoved)
        calls = {
            "reset": lambda: store.groups.reset("group"),
            "remove": lambda: store.groups.remove("group"),
            "claim": lambda: claim_device(store),  # of a type that is new to the group
        }
        other.execute("select penstock.remove_consumer_group('group')")

        waiting = threads.submit(calls[call])
        wait_until_it_waits(database_url, waiting)
        other.commit()

        with pytest.raises(GroupNotFound):
            waiting.result()


def test_an_unknown_one_is_refused(store: Store) -> None:
    with pytest.raises(GroupNotFound, match="nobody"):
        store.groups.remove("nobody")
