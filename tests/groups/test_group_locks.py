"""Who waits for whom in a group: a claim for nobody, and what changes a group for who is in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest

from penstock import BorrowedConnection, Claim, Store, Transaction, TypedMessage
from penstock.errors import StaleClaim
from tests.groups.school import (
    DEVICES,
    DeviceRemoved,
    DeviceSeen,
    UserJoinedCourse,
    claim_device,
    positions,
)
from tests.outbox.outboxes import sql
from tests.racing import wait_until_it_waits


@pytest.fixture
def group(store: Store) -> Store:
    store.groups.register("group")
    store.declare(DeviceSeen, DeviceRemoved)
    return store


def claim_within(
    transaction: Transaction | BorrowedConnection, types: list[type[TypedMessage]] = DEVICES
) -> Claim:
    """Claim a partition in a transaction that stays open."""
    claim = claim_device(transaction, types=types)  # type: ignore[arg-type]
    assert claim is not None
    return claim


@contextmanager
def impatient(store: Store) -> Iterator[BorrowedConnection]:
    """A transaction of somebody who does not wait for locks: that is an error."""
    with psycopg.connect(store.settings.conninfo()) as connection:
        connection.execute("set lock_timeout = '2s'")
        yield store.using(connection)


def make_claim_cursors(store: Store, types: list[type[TypedMessage]] = DEVICES) -> None:
    """Claim and acknowledge partitions until claims of these types begin at a claim cursor."""
    for _ in range(20):
        claim = claim_device(store, types=types)
        assert claim is not None
        store.groups.ack(claim)


@contextmanager
def routing_stopped(url: str) -> Iterator[psycopg.Connection]:
    """Stop whoever routes a message that reveals a partition, in the middle of it."""
    with psycopg.connect(url) as holder:
        holder.execute("lock table penstock.partitions in share row exclusive mode")
        yield holder


def new_group(store: Store, types: list[type[TypedMessage]]) -> None:
    """Route to nobody's partitions yet."""


@pytest.mark.parametrize("types", [DEVICES, [DeviceSeen]])
@pytest.mark.parametrize("prepare", [new_group, make_claim_cursors])
def test_a_claim_does_not_wait_for_one_that_is_open(
    group: Store,
    types: list[type[TypedMessage]],
    prepare: Callable[[Store, list[type[TypedMessage]]], None],
) -> None:
    group.append([DeviceSeen(device_id=f"device {number}") for number in range(40)])
    first = claim_device(group)  # names all types
    assert first is not None
    prepare(group, types)
    group.groups.release(first)  # so it is before a claim cursor
    with group.transaction() as claiming:
        held = claim_within(claiming, types)

        with impatient(group) as other:
            found = claim_within(other, types)

    assert held.partition_key == "device_id:device 0"
    assert found.partition_key != held.partition_key


def test_a_claim_does_not_wait_for_an_ack_that_is_open(group: Store) -> None:
    group.append([DeviceSeen(device_id="a"), DeviceSeen(device_id="b")])
    claim = claim_device(group)
    assert claim is not None
    with group.transaction() as acknowledging:
        acknowledging.groups.ack(claim)
        group.append(DeviceSeen(device_id="a"))

        with impatient(group) as other:  # and routes the message
            found = claim_within(other)

    assert found.partition_key == "device_id:b"
    assert positions(claim_device(group)) == [3]


def test_a_claim_does_not_wait_for_an_ack_after_the_end_of_the_lease(group: Store) -> None:
    group.append([DeviceSeen(device_id="a"), DeviceSeen(device_id="b")])
    claim = claim_device(group)
    assert claim is not None
    sql(group, "update penstock.partition_states set due = now() where due is not null")
    with group.transaction() as acknowledging:
        acknowledging.groups.ack(claim)

        with impatient(group) as other:
            found = claim_within(other)

    assert found.partition_key == "device_id:b"


def test_a_claim_does_not_wait_for_one_that_makes_a_claim_cursor(
    group: Store, database_url: str
) -> None:
    group.append([DeviceSeen(device_id=f"device {number}") for number in range(40)])
    make_claim_cursors(group)
    sql(group, "select pg_current_xact_id() from penstock.consumer_groups")
    for _ in range(16):  # so that the claim cursor is old
        sql(group, "select pg_current_xact_id()")
    with group.transaction() as claiming:
        claim_within(claiming)

        with impatient(group) as other:
            found = claim_within(other)

    assert found.messages


def test_a_claim_does_not_wait_for_one_that_routes_nor_route_the_same(group: Store) -> None:
    first = claim_device(group, types=[DeviceSeen])  # names the type
    group.append([DeviceRemoved(device_id="a"), DeviceSeen(device_id="b")])
    with group.transaction() as routing:
        claim_within(routing, [DeviceSeen])

        with impatient(group) as other:
            found = claim_device(other, types=[DeviceSeen])  # type: ignore[arg-type]

    keys = sql(group, "select partition_key from penstock.partitions order by 1")
    assert (first, found) == (None, None)
    assert keys == [("device_id:a",), ("device_id:b",)]


def test_a_claim_of_fewer_types_while_somebody_routes_misses_nothing(group: Store) -> None:
    group.append([DeviceRemoved(device_id=str(number)) for number in range(5)])
    assert claim_device(group) is not None  # the group handles both types
    group.append(DeviceSeen(device_id="4"))
    with group.transaction() as routing:
        claim_within(routing)
        assert claim_device(group, types=[DeviceSeen]) is None  # it is not there yet

    claim = claim_device(group, types=[DeviceSeen])

    assert claim is not None
    assert claim.partition_key == "device_id:4"


def test_a_reset_waits_for_the_router_and_makes_the_claim_stale(
    group: Store, database_url: str
) -> None:
    assert claim_device(group) is None  # names the types
    group.append(DeviceSeen(device_id="a"))
    with ThreadPoolExecutor(1) as threads:
        with group.transaction() as routing:
            claim = claim_within(routing)
            resetting = threads.submit(group.groups.reset, "group")
            wait_until_it_waits(database_url, resetting)
        resetting.result()

    with pytest.raises(StaleClaim):
        group.groups.ack(claim)
    assert positions(claim_device(group)) == [1]


def test_a_reset_waits_for_an_ack_and_remembers_it(group: Store, database_url: str) -> None:
    group.append(DeviceSeen(device_id="a"))
    claim = claim_device(group)
    assert claim is not None
    with ThreadPoolExecutor(1) as threads:
        with group.transaction() as acknowledging:
            acknowledging.groups.ack(claim)
            resetting = threads.submit(group.groups.reset, "group")
            wait_until_it_waits(database_url, resetting)
        resetting.result()

    again = claim_device(group)
    assert again is not None
    assert again.replaying


def test_a_second_resume_leaves_the_claim_after_the_first_alone(
    group: Store, database_url: str
) -> None:
    group.append(DeviceSeen(device_id="a"))
    claim = claim_device(group)
    assert claim is not None
    group.groups.release(claim, error="it failed", park=True)
    with ThreadPoolExecutor(1) as threads:
        with group.transaction() as first:
            assert first.groups.resume("group") == 1
            claimed = claim_within(first)
            resuming = threads.submit(group.groups.resume, "group")
            wait_until_it_waits(database_url, resuming)
        resumed = resuming.result()

    assert resumed == 0
    assert claim_device(group) is None
    group.groups.ack(claimed)


def test_a_type_that_is_named_while_somebody_routes_is_not_left_out(
    group: Store, database_url: str
) -> None:
    assert claim_device(group, types=[DeviceSeen]) is None
    group.append([DeviceSeen(device_id="a"), DeviceRemoved(device_id="b")])
    with ThreadPoolExecutor(2) as threads, routing_stopped(database_url) as stopped:
        routing = threads.submit(claim_device, group, types=[DeviceSeen])
        wait_until_it_waits(database_url, routing)
        naming = threads.submit(claim_device, group)
        wait_until_it_waits(database_url, naming, 2)
        stopped.rollback()
        first, second = routing.result(), naming.result()

    assert (positions(first), positions(second)) == ([1], [2])


def test_no_partition_is_claimed_while_an_older_type_is_being_routed(
    group: Store, database_url: str
) -> None:
    group.append([DeviceRemoved(device_id="a"), DeviceSeen(device_id="a")])
    claim = claim_device(group, types=[DeviceSeen])
    assert claim is not None
    group.groups.release(claim)
    sql(
        group,
        "select penstock.configure_group(g, g.partition_by, '{device.removed}')"
        " from penstock.consumer_groups g",
    )
    with psycopg.connect(database_url) as routing:
        routing.execute(
            "select pg_advisory_xact_lock(1885693286, id) from penstock.consumer_groups"
        )
        meanwhile = claim_device(group, types=[DeviceSeen])

    assert meanwhile is None  # to acknowledge it would pass over the older message
    assert positions(claim_device(group)) == [1, 2]


def test_an_attribute_that_is_declared_while_somebody_routes_is_not_overlooked(
    group: Store, database_url: str
) -> None:
    def moved(*unindexed: str) -> type[TypedMessage]:
        class Moved(TypedMessage, type="locks.moved", unindexed=unindexed):
            course_name: str
            user_id: str

        return Moved

    def claim(*types: str | type[TypedMessage]) -> Claim | None:
        return group.groups.claim_next(
            "group", partition_by=["course_name", "user_id"], handled_types=types
        )

    first = moved("user_id")
    group.append(first(course_name="Algebra", user_id="joe"))
    assert claim("locks.moved", UserJoinedCourse) is None  # routed by its one attribute
    sql(group, "select penstock.declare_type('locks.moved', '{course_name,user_id}')")
    group.append(UserJoinedCourse(course_name="Algebra", user_id="jake"))
    with ThreadPoolExecutor(2) as threads, routing_stopped(database_url) as stopped:
        claiming = threads.submit(claim, UserJoinedCourse)
        wait_until_it_waits(database_url, claiming)
        declaring = threads.submit(group.declare, moved())
        wait_until_it_waits(database_url, declaring, 2)
        stopped.rollback()
        jake = claiming.result()
        declaring.result()

    joe = claim("locks.moved", UserJoinedCourse)
    assert (positions(jake), positions(joe)) == ([2], [1])
