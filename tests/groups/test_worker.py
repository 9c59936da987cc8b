"""A worker claims, handles, appends and acknowledges, at once; what fails is tried again.

Each test runs with a `Worker`, and with an `AsyncWorker`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import psycopg
import pytest

import penstock
from penstock import (
    Claim,
    FailurePolicy,
    Interceptor,
    QueryCondition,
    RecordedMessage,
    Store,
    TypedMessage,
    Worker,
)
from penstock.errors import DeclarationBlocked, GroupNotFound, PoolExhausted, ValidationError
from tests import both_ways
from tests.both_ways import Way, way_of
from tests.groups.school import DeviceRemoved, DeviceSeen, claim_device, positions
from tests.log_output import logged
from tests.outbox.outboxes import sql
from tests.racing import wait_until

store = both_ways.store


def worker(store: Store, handler: Callable[[Claim], Any], **options: Any) -> Worker:
    made: Worker = way_of(store).Worker(
        store, "group", handler, partition_by="device_id", handled_types=[DeviceSeen], **options
    )
    return made


def removed(store: Store) -> list[str]:
    return [message.data["device_id"] for message in store.read_category("device.removed")]


def test_what_the_handler_returns_is_appended_and_the_claim_acknowledged(store: Store) -> None:
    store.append([DeviceSeen(device_id="a"), DeviceSeen(device_id="b")])
    one = worker(store, lambda claim: DeviceRemoved(**claim.partition_value))

    busy = [one.run_once() for _ in range(3)]

    assert busy == [True, True, False]
    assert removed(store) == ["a", "b"]
    assert store.groups.list()[0].pending == 0


def test_a_handler_may_return_nothing_or_several(store: Store) -> None:
    store.append([DeviceSeen(device_id="a"), DeviceSeen(device_id="b")])
    outcomes = iter([None, [DeviceRemoved(device_id="b"), DeviceRemoved(device_id="b")]])
    one = worker(store, lambda claim: next(outcomes))

    one.run_once()
    one.run_once()

    assert removed(store) == ["b", "b"]


def test_a_worker_registers_its_group(store: Store) -> None:
    worker(store, lambda claim: None).run_once()

    assert store.groups.is_active("group")


def test_after_a_conflict_it_decides_again(store: Store) -> None:
    store.append(DeviceSeen(device_id="a", reading=1))
    seen: list[list[int]] = []

    def handle(claim: Claim) -> DeviceRemoved:
        if not seen:
            store.append(DeviceSeen(device_id="a", reading=2))  # the other
        seen.append(positions(claim))
        return DeviceRemoved(device_id="a")

    assert worker(store, handle).run_until_idle() == 2

    assert seen == [[1], [1, 2]]
    assert removed(store) == ["a"]
    assert store.groups.parked("group") == []


def test_what_a_failed_handler_wanted_is_not_appended_and_it_is_tried_again(store: Store) -> None:
    store.append(DeviceSeen(device_id="a"))
    failures = iter([True, True, False])

    def handle(claim: Claim) -> DeviceRemoved:
        if next(failures):
            raise ArithmeticError
        return DeviceRemoved(device_id=f"a after {claim.attempts}")

    one = worker(store, handle, on_failure=FailurePolicy.park(attempts=3, delay=0))
    one.run_until_idle()

    assert removed(store) == ["a after 3"]


def test_after_a_failure_the_partition_rests_and_the_others_go_on(store: Store) -> None:
    store.append([DeviceSeen(device_id="a"), DeviceSeen(device_id="b")])
    handled = []

    def handle(claim: Claim) -> None:
        handled.append(claim.partition_value["device_id"])
        if claim.partition_value["device_id"] == "a":
            raise ArithmeticError

    one = worker(store, handle, on_failure=FailurePolicy.park(delay=60, longest_delay=60))
    one.run_until_idle()

    assert handled == ["a", "b"]
    assert store.groups.parked("group") == []


def test_a_partition_whose_workers_die_again_and_again_is_parked(
    store: Store, database_url: str
) -> None:
    store.groups.register("group")
    store.append(DeviceSeen(device_id="a"))
    one = worker(store, lambda claim: None, on_failure=FailurePolicy.park(attempts=1))
    assert claim_device(store, types=[DeviceSeen]) is not None  # and its worker dies
    with psycopg.connect(database_url) as connection:
        connection.execute("update penstock.partition_states set due = now()")

    one.run_once()

    (parked,) = store.groups.parked("group")
    assert parked.error is not None
    assert "died" in parked.error


def test_a_claim_that_was_taken_over_appends_nothing(store: Store, database_url: str) -> None:
    store.append(DeviceSeen(device_id="a"))

    def hang(claim: Claim) -> DeviceRemoved:
        with psycopg.connect(database_url) as connection:
            connection.execute("update penstock.partition_states set due = now()")
        assert claim_device(store, "w-2", types=[DeviceSeen]) is not None
        return DeviceRemoved(device_id="a")

    worker(store, hang).run_once()

    assert removed(store) == []
    assert store.groups.list()[0].claimed == 1


def test_the_lease_is_extended_while_the_handler_works(store: Store, database_url: str) -> None:
    store.append(DeviceSeen(device_id="a"))
    is_extended = "select due > claimed_at + interval '2 seconds' from penstock.partition_states"
    extended = []

    def work(claim: Claim) -> None:
        wait_until(
            database_url,
            f"select ({is_extended}) or clock_timestamp() > claimed_at + interval '10 seconds'"
            " from penstock.partition_states",
        )
        extended.extend(sql(store, is_extended))

    worker(store, work, lease=timedelta(seconds=1.2)).run_once()

    assert extended == [(True,)]


def test_a_worker_stops_after_the_claim_in_hand(store: Store) -> None:
    store.append([DeviceSeen(device_id="a"), DeviceSeen(device_id="b")])
    started, released = threading.Event(), threading.Event()

    def handle(claim: Claim) -> DeviceRemoved:
        started.set()
        released.wait(30)
        return DeviceRemoved(**claim.partition_value)

    one = worker(store, handle)
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(one.run)
        started.wait(30)
        one.stop()
        released.set()
        running.result(30)

    assert removed(store) == ["a"]


def test_a_worker_outlasts_a_pool_that_is_used_up(way: Way, database_url: str) -> None:
    with (
        way.connect(database_url, pool_max_size=2, pool_timeout_ms=300) as store,
        ThreadPoolExecutor(1) as threads,
        logged("all 2 connections stayed in use") as waits,
    ):
        store.append(DeviceSeen(device_id="a"))
        handled = threading.Event()
        one = worker(store, lambda claim: handled.set())
        with store.transaction(), store.transaction():
            running = threads.submit(one.run)
            assert waits.wait(60)
        assert handled.wait(60)
        one.stop()
        running.result(30)


def test_a_handler_that_gets_no_connection_is_not_at_fault(way: Way, database_url: str) -> None:
    with way.connect(database_url, pool_max_size=2, pool_timeout_ms=300) as store:
        store.append(DeviceSeen(device_id="a"))

        def handle(claim: Claim) -> None:
            with store.transaction(), store.transaction():
                store.stream_version("device-a")

        one = worker(store, handle, on_failure=FailurePolicy.park(1))
        for _ in range(3):  # given back at once each time, and not parked as if it had failed
            with pytest.raises(PoolExhausted):
                one.run_once()
        (status,) = store.groups.list()

        assert (status.parked, status.claimed) == (0, 0)


def test_a_handler_whose_outcome_cannot_be_declared_yet_is_not_at_fault(store: Store) -> None:
    class NewlyMade(TypedMessage, type="worker.newly_made"):
        device_id: str

    store.append(DeviceSeen(device_id="a"))
    one = worker(
        store,
        lambda claim: NewlyMade(**claim.partition_value),
        on_failure=FailurePolicy.park(1),
    )
    with store.transaction() as writing:
        writing.write_message("other-1", "Other")
        with pytest.raises(DeclarationBlocked):
            one.run_once()

    assert one.run_once()
    assert len(list(store.read_category("worker.newly_made"))) == 1


def test_an_outcome_of_a_new_class_needs_no_second_connection(way: Way, database_url: str) -> None:
    class Seldom(TypedMessage, type="worker.seldom"):
        device_id: str

    with way.connect(database_url, pool_max_size=1, pool_timeout_ms=300) as store:
        store.append(DeviceSeen(device_id="a"))
        one = worker(store, lambda claim: Seldom(**claim.partition_value))

        assert one.run_once()
        assert len(list(store.read_category("worker.seldom"))) == 1


def test_what_an_interceptor_cannot_read_parks_its_partition_alone(
    way: Way, database_url: str
) -> None:
    class Decrypting(Interceptor):
        def on_read(self, message: RecordedMessage) -> RecordedMessage:
            if message.data.get("reading") == 7:
                raise RuntimeError("no key for this one")
            return message

    with way.connect(database_url, interceptors=[Decrypting()]) as store:
        store.append([DeviceSeen(device_id="a", reading=7), DeviceSeen(device_id="b")])
        handled: list[str] = []
        one = worker(
            store,
            lambda claim: handled.append(claim.partition_key),
            on_failure=FailurePolicy.park(1),
        )
        one.run_until_idle()
        (parked,) = store.groups.parked("group")

    assert handled == ["device_id:b"]
    assert parked.partition_key == "device_id:a"
    assert "no key for this one" in (parked.error or "")


def test_the_pauses_between_attempts_grow(store: Store, database_url: str) -> None:
    def handle(claim: Claim) -> None:
        raise ArithmeticError

    store.append(DeviceSeen(device_id="a"))
    one = worker(store, handle, on_failure=FailurePolicy.park(4, 60, 600))
    pauses = []
    with psycopg.connect(database_url, autocommit=True) as connection:
        for _ in range(3):
            assert one.run_once()
            row = connection.execute(
                "update penstock.partition_states s set due = clock_timestamp()"
                " from penstock.partition_states o"
                " where s.offset_id = o.offset_id returning o.due - clock_timestamp()"
            ).fetchone()
            assert row is not None
            pauses.append(row[0])

    assert pauses[2] > pauses[0] * 1.5  # the chance in each is a factor of two at most


def test_the_parked_partitions_of_a_group_that_was_never_registered_are_an_error(
    store: Store,
) -> None:
    with pytest.raises(GroupNotFound):
        store.groups.parked("nobody")


def test_a_worker_of_a_stopped_group_rests(store: Store) -> None:
    store.append(DeviceSeen(device_id="a"))
    store.groups.register("group")
    store.groups.stop("group")

    assert not worker(store, lambda claim: None).run_once()


def test_a_policy_that_does_not_park_is_refused(store: Store) -> None:
    with pytest.raises(ValidationError):
        worker(store, lambda claim: None, on_failure=FailurePolicy.stop())


def test_a_message_that_cannot_be_decoded_parks_its_partition_alone(store: Store) -> None:
    store.append([DeviceSeen(device_id="a"), DeviceSeen(device_id="b")])
    with psycopg.connect(store.settings.conninfo()) as connection:
        connection.execute(
            "select message_store.write_message(gen_random_uuid()::text, 'poison-1', 'device.seen',"
            " '{\"device_id\": \"a\"}', '[1]')"
        )
    store.append(DeviceSeen(device_id="b"))
    handled: list[tuple[str, int]] = []
    policy = FailurePolicy.park(attempts=2, delay=0.0, longest_delay=0.0)
    one = worker(
        store,
        lambda claim: handled.append((claim.partition_key, len(claim.messages))),
        on_failure=policy,
    )

    one.run_until_idle()

    assert sorted(handled) == [("device_id:a", 1), ("device_id:b", 2)]
    [parked] = store.groups.parked("group")
    assert (parked.partition_key, parked.attempts) == ("device_id:a", 2)
    assert str(parked.error).startswith("DecodingError: ")


def test_a_partition_with_a_conflict_at_every_attempt_is_parked_and_the_others_go_on(
    store: Store,
) -> None:
    store.append([DeviceSeen(device_id="a"), DeviceSeen(device_id="b")])
    handled: list[str] = []

    def handle(claim: Claim) -> None:
        handled.append(claim.partition_key)
        if claim.partition_key == "device_id:a":
            store.write_message("some-1", "Done", expected_version=7)

    policy = FailurePolicy.park(attempts=2, delay=0.1, longest_delay=0.1)
    one = worker(store, handle, on_failure=policy)
    one.run_once()
    while not store.groups.parked("group"):
        one.run_once()

    assert "device_id:b" in handled[:4]
    assert store.groups.parked("group")[0].partition_key == "device_id:a"


@pytest.mark.parametrize(
    "wrong",
    [
        {"handler": None},
        {"lease": float("nan")},
        {"partition_by": []},
        {"partition_by": None},
        {"handled_types": None},
        {"handled_types": [5]},
        {"handled_types": iter([])},
        {"on_failure": "park"},
        {"batch_size": 0},
        {"batch_size": "x"},
        {"worker_id": 5},
    ],
)
def test_a_worker_that_could_only_fail_is_refused(store: Store, wrong: dict[str, Any]) -> None:
    fine = {"handler": print, "partition_by": "device_id", "handled_types": [DeviceSeen]}

    with pytest.raises(ValidationError):
        way_of(store).Worker(store, "group", **{**fine, **wrong})

    assert store.groups.list() == []


def test_an_attribute_that_no_handled_type_has_is_logged(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    terms: dict[str, Any] = {"partition_by": ["device_id", "divice_id"]}

    make = way_of(store).Worker
    make(store, "group", print, handled_types=[DeviceSeen], **terms)
    make(store, "group", print, handled_types=["device.seen"], **terms)  # which may have it

    assert [one.partition(":")[0] for one in caplog.messages] == [
        "no handled type indexes divice_id"
    ]


@pytest.mark.parametrize(
    "call",
    [
        lambda store, claim: store.append(None),
        lambda store, claim: store.append(5),
        lambda store, claim: store.read(None),
        lambda store, claim: store.read(["x"]),
        lambda store, claim: store.read_partition(5, [DeviceSeen]),
        lambda store, claim: store.read_partition({5: 5}, [DeviceSeen]),
        lambda store, claim: store.read_partition({"device_id": 5}, [DeviceSeen]),
        lambda store, claim: store.read_partition({"device_id": "a", "x": "y"}, [DeviceSeen]),
        lambda store, claim: store.append(
            DeviceSeen(device_id="a"),
            penstock.Guard((QueryCondition("device.seen", "x", "y"),) * 5001),
        ),
        lambda store, claim: store.declare("device.seen"),
        lambda store, claim: penstock.Guard(None),  # type: ignore[arg-type]
        lambda store, claim: store.groups.claim_next(
            "g", partition_by=5, handled_types=[DeviceSeen]
        ),
        lambda store, claim: store.groups.claim_next("g", partition_by="a", handled_types=[5]),
        lambda store, claim: store.groups.claim_next(
            "g", partition_by="a", handled_types=[DeviceSeen], batch_size=2**31
        ),
        lambda store, claim: store.groups.ack(None),
        lambda store, claim: store.groups.release(5),
        lambda store, claim: store.groups.extend(None),
        lambda store, claim: store.groups.release(claim, delay=float("nan")),
        lambda store, claim: store.groups.release(claim, delay=float("inf")),
        lambda store, claim: store.groups.release(claim, park=5),
    ],
)
def test_what_is_of_a_wrong_type_is_refused_by_name(
    store: Store, call: Callable[[Store, Claim], object]
) -> None:
    store.groups.register("group")
    store.append(DeviceSeen(device_id="a"))
    claim = claim_device(store)
    assert claim is not None

    with pytest.raises(ValidationError):
        call(store, claim)

    assert store.groups.list()[0].claimed == 1


def test_no_more_is_acknowledged_than_was_claimed(store: Store) -> None:
    store.groups.register("group")
    store.append([DeviceSeen(device_id="a") for _ in range(3)])
    claim = store.groups.claim_next(
        "group", partition_by="device_id", handled_types=[DeviceSeen], batch_size=1
    )
    assert claim is not None

    with pytest.raises(penstock.errors.InvalidAck):
        store.groups.ack(claim, claim.last_position + 1)
    store.groups.ack(claim)

    assert positions(claim_device(store)) == [2, 3]


def test_a_group_is_not_bound_to_a_name_that_no_message_has(store: Store) -> None:
    store.groups.register("group")
    store.append(DeviceSeen(device_id="a"))

    mistyped = store.groups.claim_next("group", partition_by="devise", handled_types=[DeviceSeen])
    claim = claim_device(store)

    assert mistyped is None
    assert positions(claim) == [1]
    with pytest.raises(penstock.errors.PartitionByChanged):
        store.groups.claim_next("group", partition_by="devise", handled_types=[DeviceSeen])


def test_a_group_without_workers_shows_how_long_its_messages_wait(store: Store) -> None:
    store.groups.register("group")
    store.append(DeviceSeen(device_id="a"))
    claim = claim_device(store)
    assert claim is not None
    store.groups.ack(claim)
    done = store.groups.list()[0]

    store.append(DeviceSeen(device_id="b"))

    assert done.oldest_pending is None
    assert (
        store.groups.list()[0].oldest_pending == store.get_category_messages("device.seen")[1].time
    )


def test_groups_come_in_pages_and_their_partitions_are_counted_up_to_a_limit(store: Store) -> None:
    for name in ("a", "group", "z"):
        store.groups.register(name)
    store.append([DeviceSeen(device_id=str(number)) for number in range(5)])
    claim = claim_device(store)
    assert claim is not None

    (counted,) = store.groups.list(3, after="a", limit=1)
    (whole,) = store.groups.list(after="a", limit=1)

    assert (counted.group_id, counted.partitions, counted.pending) == ("group", 3, 3)
    assert (whole.partitions, whole.pending, whole.claimed) == (5, 5, 1)
    assert "device.seen" in whole.handled_types
    assert [one.group_id for one in store.groups.list(after="group")] == ["z"]
    wrong: dict[str, Any]
    for wrong in ({"count_up_to": -1}, {"limit": 0}, {"after": "\0"}):
        with pytest.raises(penstock.errors.ValidationError):
            store.groups.list(**wrong)


def test_a_parked_partition_is_not_pending(store: Store) -> None:
    store.groups.register("group")
    store.append([DeviceSeen(device_id="a"), DeviceSeen(device_id="b")])
    claim = claim_device(store)
    assert claim is not None
    store.groups.release(claim, error="no", park=True)

    (status,) = store.groups.list()

    assert (status.pending, status.parked) == (1, 1)
    assert status.oldest_pending == store.get_category_messages("device.seen")[1].time
    assert status.seconds_behind > 0
