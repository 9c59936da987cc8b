"""Partitioned groups handle archived messages as they handle every other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median_high
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock
from penstock import AsyncStore, Store, TypedMessage
from penstock.errors import ArchiveUnreachable
from penstock.log.archive import archive
from penstock.log.retention import Keep
from tests.groups.school import DEVICES, DeviceSeen, claim_device, positions
from tests.groups.test_group_costs import Caller
from tests.log.archiving import in_table, store_with_warehouse
from tests.racing import wait_until_it_waits


class Joined(TypedMessage, type="archived.joined"):
    course: str | None = None
    student: str | None = None


class Named(TypedMessage, type="archived.named"):
    student: str


JOINING: list[type[TypedMessage]] = [Joined, Named]


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    folder = tmp_path / "lake"
    folder.mkdir()
    return folder


@pytest.fixture
def store(database_url: str, warehouse: Path) -> Iterator[Store]:
    with store_with_warehouse(database_url, warehouse) as store:
        store.groups.register("group")
        yield store


@pytest.fixture
def twins(new_database: Callable[[str], str], warehouse: Path) -> Iterator[tuple[Store, Store]]:
    """Two logs, to be written alike; the second is archived."""
    with (
        penstock.connect(new_database("penstock")) as plain,
        store_with_warehouse(new_database("penstock"), warehouse) as archived,
    ):
        yield plain, archived


def moved(store: Store, category: str = "device.seen", count: int = 0) -> int:
    """Archive all messages of a category but so many, whoever has not read them."""
    return archive(store.context, category, Keep(count=count), ignore_consumers=True).moved


def seen(store: Store, devices: str) -> None:
    store.append([DeviceSeen(device_id=device, reading=7) for device in devices])


def acked(store: Store) -> list[int]:
    """Claim and acknowledge all messages of the group, and return them in order."""
    found = []
    while (claim := claim_device(store)) is not None:
        found += positions(claim)
        store.groups.ack(claim)
    return found


def test_a_group_that_starts_late_handles_archived_messages(store: Store) -> None:
    seen(store, "aba")
    moved(store)
    assert in_table(store) == [3]

    claim = claim_device(store)

    assert claim is not None
    assert positions(claim) == [1, 3]
    assert [one.data for one in claim.messages] == [{"device_id": "a", "reading": 7}] * 2
    store.append(DeviceSeen(device_id="a"), claim.guard)
    store.groups.ack(claim)
    assert acked(store) == [2, 4]


def test_messages_that_are_archived_while_they_wait_stay_in_their_partitions(store: Store) -> None:
    seen(store, "abab")
    first = claim_device(store)
    assert first is not None
    store.groups.ack(first, 1)

    moved(store)

    assert acked(store) == [2, 4, 3]


def test_messages_that_are_archived_while_they_are_claimed_can_be_acknowledged(
    store: Store,
) -> None:
    seen(store, "aaab")
    claim = claim_device(store)
    assert claim is not None

    moved(store)

    store.groups.ack(claim, 2)
    assert acked(store) == [3, 4]


def test_a_released_claim_is_claimed_again_with_its_archived_messages(store: Store) -> None:
    seen(store, "aab")
    claim = claim_device(store)
    assert claim is not None
    moved(store)
    store.groups.release(claim, error="failed", park=True)
    assert acked(store) == [3]

    store.groups.resume("group")

    assert acked(store) == [1, 2]


def test_a_reset_group_replays_archived_messages(store: Store) -> None:
    seen(store, "abab")
    before = acked(store)
    moved(store)
    store.groups.reset("group")

    claim = claim_device(store)

    assert claim is not None
    assert claim.replaying
    store.groups.ack(claim)
    assert [*positions(claim), *acked(store)] == before


def test_a_claim_that_names_fewer_types_finds_archived_messages(store: Store) -> None:
    seen(store, "abab")
    moved(store)
    claim = claim_device(store, types=DEVICES)
    assert claim is not None
    store.groups.release(claim)

    narrowed = claim_device(store, types=[DeviceSeen])

    assert positions(narrowed) == [1, 3]


def test_messages_that_are_moved_while_they_are_being_claimed_are_not_lost(
    store: Store, database_url: str
) -> None:
    """The claim has found the positions of its messages, and not read them yet."""
    seen(store, "aab")
    with ThreadPoolExecutor(1) as threads, psycopg.connect(database_url) as blocker:
        blocker.execute("lock table penstock.claim_cursors in exclusive mode")
        claiming = threads.submit(claim_device, store)
        wait_until_it_waits(database_url, claiming)
        assert moved(store) == 2
        blocker.rollback()
        claim = claiming.result()

    assert positions(claim) == [1, 2]


def test_a_claim_whose_messages_cannot_be_read_is_given_back(store: Store, warehouse: Path) -> None:
    """An archive that is away for long would use up the attempts of its partitions otherwise."""
    seen(store, "aab")
    moved(store)
    away = warehouse.rename(warehouse.with_name("away"))

    for _ in range(2):
        with pytest.raises(ArchiveUnreachable):
            claim_device(store)
        claim = claim_device(store)
        assert positions(claim) == [3]  # others are claimed meanwhile
        assert claim is not None
        store.groups.release(claim)
        make_ready(store)
    away.rename(warehouse)

    claim = claim_device(store)
    assert claim is not None
    assert (positions(claim), claim.attempts) == ([1, 2], 1)


def make_ready(store: Store) -> None:
    """End the delay of all partitions."""
    with psycopg.connect(store.settings.conninfo(), autocommit=True) as connection:
        connection.execute(
            "update penstock.partition_states set due = now() - interval '1 minute',"
            " xid = default where due is not null"
        )


def test_the_lag_of_a_group_counts_from_its_first_archived_message(store: Store) -> None:
    seen(store, "ab")
    claim = claim_device(store)
    assert claim is not None
    store.groups.release(claim)
    (before,) = store.groups.list()

    moved(store)

    (after,) = store.groups.list()
    assert before.oldest_pending is not None
    assert after.oldest_pending == before.oldest_pending


async def test_an_async_group_reads_them_too(store: Store, database_url: str) -> None:
    seen(store, "aa")
    moved(store)

    async with await penstock.connect_async(database_url) as other:
        assert isinstance(other, AsyncStore)
        claim = await other.groups.claim_next(
            "group", partition_by="device_id", handled_types=DEVICES
        )

    assert positions(claim) == [1, 2]


values = st.none() | st.sampled_from("ab")
joining = st.builds(Joined, course=values, student=values) | st.builds(
    Named, student=st.sampled_from("ab")
)
#: a category, and how many of its messages are not archived
cuts = st.lists(
    st.tuples(st.sampled_from(["archived.joined", "archived.named"]), st.integers(0, 4)),
    max_size=2,
)


@settings(
    max_examples=10,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    log=st.lists(st.tuples(joining, cuts), max_size=10),
    claims_before=st.integers(0, 3),
    at_the_end=cuts,
)
def test_claims_of_an_archived_log_are_those_of_its_twin(
    twins: tuple[Store, Store],
    log: list[tuple[TypedMessage, list[tuple[str, int]]]],
    claims_before: int,
    at_the_end: list[tuple[str, int]],
) -> None:
    results = []
    for store in twins:
        clear(store)
        is_archived = store is twins[1]
        claimed: list[Any] = []
        for message, cut in log:
            store.append(message.to_message())
            for category, count in cut if is_archived else []:
                moved(store, category, count)
        claimed += claims(store, claims_before)
        for category, count in at_the_end if is_archived else []:
            moved(store, category, count)
        claimed += claims(store, 100)
        store.groups.reset("group")
        claimed += claims(store, 100)
        results.append(claimed)

    assert results[0] == results[1]


def clear(store: Store) -> None:
    with psycopg.connect(store.settings.conninfo(), autocommit=True) as connection:
        connection.execute("truncate message_store.messages restart identity")
    store.groups.clear()
    store.groups.register("group")
    store.declare(*JOINING)


def claims(store: Store, most: int) -> list[Any]:
    """Claim and acknowledge partitions, a message or two at a time, and return what they had."""
    found = []
    for number in range(most):
        claim = store.groups.claim_next(
            "group",
            partition_by=["course", "student"],
            handled_types=JOINING,
            batch_size=1 + number % 2,
        )
        if claim is None:
            break
        messages = [(one.global_position, one.type, one.data) for one in claim.messages]
        found.append((claim.partition_key, claim.replaying, messages, claim.guard))
        store.groups.ack(claim)
    return found


def test_a_claim_reads_as_many_pages_however_much_is_archived(
    new_database: Callable[[str], str], warehouse: Path
) -> None:
    pages = [pages_of_a_claim(new_database("penstock"), warehouse, count) for count in (200, 3000)]

    assert pages[1] <= pages[0] + 15  # indexes get another level


def pages_of_a_claim(url: str, warehouse: Path, count: int) -> int:
    """Archive so many messages, route them, and count the pages that a claim of one reads."""
    folder = warehouse / str(count)
    folder.mkdir()
    with store_with_warehouse(url, folder) as store:
        store.groups.register("group")
        seen(store, "abcdefghij" * (count // 10))
        moved(store)
    caller = Caller(url)
    with caller.not_counting():
        for _ in range(count // 100):  # a claim routes some hundreds
            caller.name_types()
    for _ in range(10):
        caller.claim_and_ack()
    caller.close()
    return median_high(caller.pages["claim"])
