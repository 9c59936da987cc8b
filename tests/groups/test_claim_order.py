"""In which order partitions are claimed, claim cursors, and calls that are repeated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import penstock
from penstock import AsyncStore, Claim, Store, Worker
from penstock.errors import StaleClaim, ValidationError
from tests.groups.school import (
    DeviceRemoved,
    DeviceSeen,
    UserJoinedCourse,
    claim_device,
    claim_student,
    positions,
)
from tests.outbox.outboxes import sql


@pytest.fixture
def group(store: Store) -> Store:
    store.groups.register("group")
    store.declare(DeviceSeen, DeviceRemoved)
    return store


def worker(store: Store, handler: Callable[[Claim], Any], **options: Any) -> Worker:
    return Worker(
        store, "group", handler, partition_by="device_id", handled_types=[DeviceSeen],
        batch_size=1, **options,
    )  # fmt: skip


def handled(store: Store, count: int, **options: Any) -> list[str]:
    """Run two workers one after the other, and return which devices they handled."""
    seen: list[str] = []
    two = [
        worker(store, lambda claim: seen.append(claim.partition_value["device_id"]), **options)
        for _ in range(2)
    ]
    for number in range(count):
        two[number % 2].run_once()
    return seen


def test_two_hot_partitions_do_not_hold_up_the_others(group: Store) -> None:
    group.append([DeviceSeen(device_id=f"hot {n % 2}") for n in range(200)])
    group.append([DeviceSeen(device_id=f"cold {n}") for n in range(20)])

    seen = handled(group, 40)

    assert Counter(device[:4] for device in seen)["cold"] == 20


def test_in_the_order_of_the_oldest_message_they_do(group: Store) -> None:
    group.append([DeviceSeen(device_id=f"hot {n % 2}") for n in range(200)])
    group.append([DeviceSeen(device_id=f"cold {n}") for n in range(20)])

    seen = handled(group, 40, order="oldest")

    assert Counter(device[:4] for device in seen)["cold"] == 0


def test_partitions_that_are_always_ready_are_handled_one_after_the_other(group: Store) -> None:
    group.append([DeviceSeen(device_id=device) for device in "aaaabbbbcccc"])

    assert handled(group, 6) == ["a", "b", "c", "a", "b", "c"]


def test_another_order_is_refused(group: Store) -> None:
    with pytest.raises(ValidationError, match="round_robin"):
        worker(group, lambda claim: None, order="newest")
    with pytest.raises(ValidationError, match="round_robin"):
        group.groups.claim_next("group", partition_by="a", handled_types=[DeviceSeen], order="x")  # type: ignore[arg-type]


def test_an_ack_that_is_repeated_answers_as_the_first_did(group: Store) -> None:
    group.append([DeviceSeen(device_id="a"), DeviceSeen(device_id="a")])
    claim = claim_device(group)
    assert claim is not None
    group.groups.ack(claim, positions(claim)[0])

    group.groups.ack(claim, positions(claim)[0])  # its answer was lost

    assert positions(claim_device(group)) == [2]
    group.groups.ack(claim, positions(claim)[0])  # also while another worker holds the partition


def test_a_release_that_is_repeated_answers_as_the_first_did(group: Store) -> None:
    group.append(DeviceSeen(device_id="a"))
    claim = claim_device(group)
    assert claim is not None
    group.groups.release(claim, error="it failed", park=True)

    group.groups.release(claim, error="it failed", park=True)

    assert [parked.attempts for parked in group.groups.parked("group")] == [1]


def test_another_call_with_a_token_that_was_used_changes_nothing(group: Store) -> None:
    group.append([DeviceSeen(device_id="a"), DeviceSeen(device_id="a")])
    claim = claim_device(group)
    assert claim is not None
    group.groups.ack(claim, 1)

    others: list[Callable[[], None]] = [
        lambda: group.groups.ack(claim, 2),
        lambda: group.groups.release(claim),
        lambda: group.groups.release(claim, park=True),
        lambda: group.groups.extend(claim),
    ]
    for call in others:
        with pytest.raises(StaleClaim):
            call()

    assert positions(claim_device(group)) == [2]


async def test_an_async_ack_and_release_may_be_repeated(async_store: AsyncStore) -> None:
    await async_store.groups.register("group")
    await async_store.append([DeviceSeen(device_id="a"), DeviceSeen(device_id="a")])

    async def claim_one() -> Claim:
        claim = await async_store.groups.claim_next(
            "group", partition_by="device_id", handled_types=[DeviceSeen], batch_size=1
        )
        assert claim is not None
        return claim

    first = await claim_one()
    for _ in range(2):
        await async_store.groups.release(first)
    second = await claim_one()
    for _ in range(2):
        await async_store.groups.ack(second)

    assert positions(await claim_one()) == [2]


def test_partitions_whose_hashes_collide_are_kept_apart(store: Store) -> None:
    sql(
        store,
        "create or replace function penstock.feed_key(projection text[]) returns bigint"
        " language sql immutable parallel safe as $$ select 7::bigint $$",
    )
    store.groups.register("group")
    store.append([
        UserJoinedCourse(course_name="Algebra", user_id="joe"),
        UserJoinedCourse(course_name="Algebra", user_id="jake"),
        UserJoinedCourse(course_name="History", user_id="joe"),
        UserJoinedCourse(course_name="Algebra", user_id="jake"),
    ])  # fmt: skip
    seen = {}
    while (claim := claim_student(store)) is not None:
        seen[claim.partition_key] = positions(claim)
        store.groups.ack(claim)

    assert seen == {
        "course_name:Algebra|user_id:joe": [1],
        "course_name:Algebra|user_id:jake": [2, 4],
        "course_name:History|user_id:joe": [3],
    }


def test_after_a_reset_partitions_whose_hashes_collide_know_what_each_has_handled(
    store: Store,
) -> None:
    sql(
        store,
        "create or replace function penstock.feed_key(projection text[]) returns bigint"
        " language sql immutable parallel safe as $$ select 7::bigint $$",
    )
    store.groups.register("group")
    store.append([DeviceSeen(device_id="a"), DeviceSeen(device_id="b")])
    claim = claim_device(store)
    assert claim is not None
    store.groups.ack(claim)
    store.groups.reset("group")
    store.groups.reset("group")

    first, second = claim_device(store), claim_device(store)

    assert first is not None
    assert second is not None
    assert (first.replaying, second.replaying) == (True, False)


def test_an_ack_that_commits_after_a_claim_cursor_was_made_is_found(
    group: Store, database_url: str
) -> None:
    group.append([DeviceSeen(device_id="slow"), DeviceSeen(device_id="slow")])
    group.append([DeviceSeen(device_id=str(n)) for n in range(60)])
    slow = claim_device(group)
    assert slow is not None
    with group.transaction() as acknowledging:
        # its next message is the oldest of all, and not visible yet
        acknowledging.groups.ack(slow, 1)
        for _ in range(40):
            claim = claim_device(group)
            assert claim is not None
            group.groups.ack(claim)

    with penstock.connect(database_url) as other:
        assert positions(claim_device(other)) == [2]


def test_a_partition_that_returns_before_the_claim_cursor_is_found(group: Store) -> None:
    group.append([DeviceSeen(device_id="slow"), DeviceSeen(device_id="slow")])
    group.append([DeviceSeen(device_id=str(n)) for n in range(60)])
    slow = claim_device(group)
    assert slow is not None
    for _ in range(40):
        claim = claim_device(group)
        assert claim is not None
        group.groups.ack(claim)

    group.groups.ack(slow, 1)  # its next message is the oldest of all

    assert positions(claim_device(group)) == [2]


def test_a_claim_that_is_rolled_back_after_a_claim_cursor_was_made_is_found(group: Store) -> None:
    group.append([DeviceSeen(device_id=str(n)) for n in range(60)])
    claim = claim_device(group)
    assert claim is not None
    group.groups.release(claim)
    claiming = group.begin_transaction()
    assert positions(claim_device(claiming)) == [1]  # type: ignore[arg-type]
    for _ in range(40):
        claim = claim_device(group)
        assert claim is not None
        group.groups.ack(claim)

    claiming.rollback()

    assert positions(claim_device(group)) == [1]


def test_many_claims_that_are_rolled_back_after_a_claim_cursor_was_made_are_found(
    group: Store,
) -> None:
    group.append([DeviceSeen(device_id=str(n)) for n in range(80)])
    claim = claim_device(group)
    assert claim is not None
    group.groups.release(claim)
    claiming = [group.begin_transaction() for _ in range(3)]
    for number in range(30):  # more than a claim cursor lists
        transaction = claiming[number // 10]
        assert claim_device(transaction) is not None  # type: ignore[arg-type]
    for _ in range(40):
        claim = claim_device(group)
        assert claim is not None
        group.groups.ack(claim)

    for transaction in claiming:
        transaction.rollback()

    found = [positions(claim_device(group)) for _ in range(30)]
    assert found == [[n] for n in range(1, 31)]


def test_what_a_transaction_gives_back_after_it_made_a_claim_cursor_is_found(group: Store) -> None:
    group.append([DeviceSeen(device_id="a"), DeviceSeen(device_id="a"), DeviceSeen(device_id="b")])
    with group.transaction() as transaction:
        first = claim_device(transaction)  # type: ignore[arg-type]
        assert first is not None
        for _ in range(3):
            other = claim_device(transaction)  # type: ignore[arg-type]
            assert other is not None
            transaction.groups.release(other)
        transaction.groups.ack(first, 1)

    assert positions(claim_device(group)) == [2]


def test_a_message_of_a_named_type_for_a_partition_that_was_passed_over_is_found(
    group: Store,
) -> None:
    group.append([DeviceRemoved(device_id=str(n)) for n in range(30)])
    assert claim_device(group) is not None  # the group handles both types
    for _ in range(30):
        assert claim_device(group, types=[DeviceSeen]) is None

    group.append(DeviceSeen(device_id="7"))

    claim = claim_device(group, types=[DeviceSeen])
    assert claim is not None
    assert claim.partition_key == "device_id:7"


def test_many_partitions_whose_leases_end_at_once_are_all_claimed_again(group: Store) -> None:
    group.append([DeviceSeen(device_id=str(n)) for n in range(150)])
    for _ in range(150):
        assert claim_device(group) is not None
    sql(group, "update penstock.partition_states set due = now()")

    again = {claim.partition_key for _ in range(150) if (claim := claim_device(group)) is not None}

    assert len(again) == 150


def test_after_the_log_was_emptied_a_group_begins_again(group: Store) -> None:
    group.append([DeviceSeen(device_id="a"), DeviceSeen(device_id="b")])
    claim = claim_device(group)
    assert claim is not None
    group.groups.ack(claim)
    other = claim_device(group)
    assert other is not None

    sql(group, "truncate message_store.messages restart identity")
    sql(group, "truncate penstock.message_attributes")
    sql(group, "select penstock.forget_group_positions()")
    group.append([DeviceSeen(device_id="a"), DeviceSeen(device_id="b")])

    again = [claim_device(group), claim_device(group)]
    assert [positions(claim) for claim in again] == [[1], [2]]
    assert not any(claim.replaying for claim in again if claim is not None)
    with pytest.raises(StaleClaim):
        group.groups.ack(other)


def test_workers_that_claim_at_once_get_every_message_once(group: Store) -> None:
    group.append([DeviceSeen(device_id=f"{n % 40}") for n in range(400)])
    seen: list[int] = []

    def work(number: int) -> None:
        with penstock.connect(group.settings.conninfo()) as store:
            while (claim := claim_device(store, f"w-{number}")) is not None:
                seen.extend(positions(claim))
                store.groups.ack(claim)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))

    assert sorted(seen) == list(range(1, 401))
