"""A crash of the server undoes the claims of workers, which do not wait for the disk."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import LiteralString

import psycopg
import pytest

import penstock
from penstock import Claim, Store, Worker
from penstock.errors import StaleClaim
from penstock.groups import claims
from tests.groups.school import DeviceRemoved, DeviceSeen
from tests.servers import OwnServer, own_server


@pytest.fixture(scope="module")
def own() -> Iterator[OwnServer]:
    with own_server() as server:
        yield server


@pytest.fixture
def own_store(own: OwnServer) -> Iterator[Store]:
    with penstock.connect(own.url) as store:
        store.declare(DeviceSeen, DeviceRemoved)
        yield store


def claim_alone(
    store: Store, group_id: str, worker_id: str = "w", lease: float = 0.5
) -> Claim | None:
    """Claim as a worker does, without waiting for the disk."""
    return store.run(
        claims.claim_next(
            store.context,
            group_id,
            "device_id",
            [DeviceSeen],
            worker_id,
            1,
            lease,
            "round_robin",
            durable=False,
        )
    )


def settle(store: Store, claim: Claim) -> None:
    """Append an outcome and acknowledge, as a worker does."""
    with store.transaction() as transaction:
        transaction.append(outcome(claim), guard=claim.guard)
        transaction.groups.ack(claim)


def outcome(claim: Claim) -> DeviceRemoved:
    return DeviceRemoved(device_id=f"{claim.group_id} {claim.messages[0].global_position}")


def test_what_two_workers_did_for_one_message_counts_once(own: OwnServer, own_store: Store) -> None:
    own_store.groups.register("twice")
    own_store.append(DeviceSeen(device_id="twice"))
    with own.crashing():
        lost = claim_alone(own_store, "twice", "first", lease=60)
    assert lost is not None

    again = claim_alone(own_store, "twice", "second", lease=60)  # before any lease has ended
    with pytest.raises(StaleClaim):
        settle(own_store, lost)
    assert again is not None
    settle(own_store, again)
    with pytest.raises(StaleClaim):
        own_store.groups.extend(lost, 60)

    assert [one.global_position for one in again.messages] == [
        one.global_position for one in lost.messages
    ]
    assert outcomes(own_store, [lost]) == [1]
    assert claim_alone(own_store, "twice") is None
    own_store.groups.clear()


def test_a_worker_handles_its_message_again_after_a_crash(own: OwnServer, own_store: Store) -> None:
    own_store.append(DeviceSeen(device_id="again"))
    seen: list[Claim] = []

    def handle(claim: Claim) -> DeviceRemoved:
        if not seen:
            with own.crashing():
                seen.append(claim)
        else:
            seen.append(claim)
        return outcome(claim)

    worker = Worker(
        own_store, "again", handle, partition_by="device_id", handled_types=[DeviceSeen]
    )
    worker.run_until_idle()

    assert seen[0].token != seen[-1].token
    assert set(outcomes(own_store, seen)) == {1}
    own_store.groups.clear()


def outcomes(store: Store, handled: list[Claim]) -> list[int]:
    """Return how many outcomes there are of the message of each claim."""
    counts = Counter(one.data["device_id"] for one in store.read_category("device.removed"))
    return [counts[outcome(claim).device_id] for claim in handled]


def test_no_partition_is_missed_whichever_claims_are_undone(
    own: OwnServer, own_store: Store
) -> None:
    """The cursors of a group name transactions, whose ids are used again after a crash."""
    chance, group_id = random.Random(1), "group"
    own_store.groups.register(group_id)
    sent = [DeviceSeen(device_id=f"{group_id}-{number % 40}") for number in range(120)]
    own_store.append(sent)

    with ExitStack() as opened, own.crashing():
        held = claim_some(own, own_store, group_id, chance, opened)
        before = transaction_id(own.url)
    after = transaction_id(own.url)
    for claim in held:  # by workers that have not noticed the crash
        settle_if_held(own_store, claim)
    while not is_done(own.url):
        claimed = claim_alone(own_store, group_id)
        if claimed is not None:
            settle_if_held(own_store, claimed)

    assert after < before
    mine = [
        one for one in own_store.read_category("device.seen") if group_id in one.data["device_id"]
    ]
    counts = Counter(one.data["device_id"] for one in own_store.read_category("device.removed"))
    assert [counts[f"{group_id} {one.global_position}"] for one in mine] == [1] * len(sent)
    own_store.groups.clear()


def claim_some(
    own: OwnServer, store: Store, group_id: str, chance: random.Random, opened: ExitStack
) -> list[Claim]:
    """Claim, acknowledge and release at random, and only claim at last: that is undone."""
    held: list[Claim] = []
    for number in range(60):
        if number % 10 == 0:  # a transaction that later cursors list as open
            other = psycopg.connect(own.url)
            opened.callback(other.close)
            other.execute("select pg_current_xact_id()")
        claim = claim_alone(store, group_id)
        if claim is not None:
            held.append(claim)
        if held and number < 40 and chance.random() < 0.7:
            one = held.pop(chance.randrange(len(held)))
            if chance.random() < 0.7:
                settle_if_held(store, one)
            else:
                with suppress(StaleClaim):
                    store.groups.release(one)
    return held


def settle_if_held(store: Store, claim: Claim) -> None:
    with suppress(StaleClaim):
        settle(store, claim)


def transaction_id(url: str) -> int:
    """Return the id of a new transaction."""
    return one_value(url, "select pg_current_xact_id()::text::bigint")


def is_done(url: str) -> bool:
    return not one_value(
        url, "select count(*) from penstock.partition_states where next_position is not null"
    )


def one_value(url: str, query: LiteralString) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0])
