"""What the design decides about guards and groups, line by line."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from datetime import timedelta

import psycopg
import pytest

from penstock import (
    Claim,
    ConcurrentAppendError,
    FailurePolicy,
    Guard,
    QueryCondition,
    Store,
    Worker,
)
from penstock.errors import (
    GroupNotFound,
    InvalidAck,
    PartitionByChanged,
    StaleClaim,
    ValidationError,
)
from penstock.loops.durations import Duration
from tests.groups.school import (
    SCHOOL,
    CourseCreated,
    DeviceRemoved,
    DeviceSeen,
    UserJoinedCourse,
    claim_device,
    claim_student,
    positions,
)
from tests.racing import wait_until


@pytest.fixture
def group(store: Store) -> Store:
    store.groups.register("group")
    return store


@pytest.fixture
def claim(group: Store) -> Claim:
    """A claim on the one partition of the group, with two messages."""
    group.append([DeviceSeen(device_id="a", reading=1), DeviceSeen(device_id="a", reading=2)])
    claim = claim_device(group)
    assert claim is not None
    return claim


def test_conditions_of_one_message_type_are_one_compound_and(store: Store) -> None:
    store.append(
        [
            UserJoinedCourse(course_name="Algebra", user_id="joe"),
            UserJoinedCourse(course_name="Algebra", user_id="jake"),
            UserJoinedCourse(course_name="History", user_id="joe"),
        ]
    )

    messages, _ = store.read(UserJoinedCourse.to_conditions(course_name="Algebra", user_id="joe"))

    assert [one.global_position for one in messages] == [1]


def test_conditions_of_different_types_are_or(store: Store) -> None:
    store.append(
        [
            CourseCreated(course_name="Algebra"),
            UserJoinedCourse(course_name="History", user_id="joe"),
            CourseCreated(course_name="Physics"),
        ]
    )

    messages, _ = store.read(
        [
            QueryCondition("course.created", "course_name", "Algebra"),
            QueryCondition("user.joined_course", "user_id", "joe"),
        ]
    )

    assert [one.global_position for one in messages] == [1, 2]


def test_two_values_for_one_attribute_of_one_type_are_alternatives(store: Store) -> None:
    store.append([CourseCreated(course_name=name) for name in ("Algebra", "History", "Physics")])
    conditions = [
        QueryCondition("course.created", "course_name", "Algebra"),
        QueryCondition("course.created", "course_name", "Physics"),
    ]

    messages, guard = store.read(conditions)
    store.append(CourseCreated(course_name="Physics"))

    assert [one.global_position for one in messages] == [1, 3]
    with pytest.raises(ConcurrentAppendError):
        store.append(CourseCreated(course_name="Algebra"), guard)


def test_the_guard_covers_everything_visible_fetched_or_not(store: Store) -> None:
    store.append([DeviceSeen(device_id="a", reading=number) for number in range(5)])

    messages, guard = store.read(DeviceSeen.to_conditions(device_id="a"), limit=2)

    assert len(messages) == 2
    assert store.append(DeviceRemoved(device_id="a"), guard).position == 6


def test_a_partitions_unread_backlog_is_not_a_conflict(group: Store) -> None:
    group.append([DeviceSeen(device_id="a", reading=number) for number in range(5)])

    claim = group.groups.claim_next(
        "group", partition_by="device_id", handled_types=[DeviceSeen, DeviceRemoved], batch_size=2
    )

    assert len(positions(claim)) == 2
    assert claim is not None
    assert group.append(DeviceRemoved(device_id="a"), claim.guard).position == 6


def test_a_writer_that_was_open_at_the_claim_is_a_conflict_once_it_commits(group: Store) -> None:
    group.declare(DeviceSeen, DeviceRemoved)
    group.append(DeviceSeen(device_id="a"))
    with group.transaction() as writer:
        writer.append(DeviceSeen(device_id="a"))
        claim = claim_device(group)

    assert positions(claim) == [1]
    assert claim is not None
    with pytest.raises(ConcurrentAppendError):
        group.append(DeviceRemoved(device_id="a"), claim.guard)


def test_a_guard_is_an_immutable_value() -> None:
    guard = Guard([QueryCondition("device.seen", "device_id", "a")], 3, [(5, 5)])  # type: ignore[arg-type]

    with pytest.raises(FrozenInstanceError):
        guard.low = 4  # type: ignore[misc]

    assert guard == Guard((QueryCondition("device.seen", "device_id", "a"),), 3, ((5, 5),))
    assert len({guard, guard.after([6]), guard.after([])}) == 2


def test_an_append_returns_the_last_position_and_the_guard_to_use_next(store: Store) -> None:
    _, guard = store.read(DeviceSeen.to_conditions(device_id="a"))

    first = store.append([DeviceSeen(device_id="a"), DeviceSeen(device_id="a")], guard)
    second = store.append(DeviceSeen(device_id="a"), first.guard)

    assert (first.position, second.position) == (2, 3)
    with pytest.raises(ConcurrentAppendError):
        store.append(DeviceSeen(device_id="a"), first.guard)


def test_a_retry_of_an_append_after_a_lost_reply_returns_the_first_result(store: Store) -> None:
    _, guard = store.read(DeviceSeen.to_conditions(device_id="a"))
    messages = [DeviceSeen(device_id="a"), DeviceSeen(device_id="a")]
    first = store.append(messages, guard)
    store.append(DeviceSeen(device_id="a"))  # meanwhile, somebody else

    again = store.append(messages, guard)

    assert again == first


def test_an_empty_hand_made_guard_is_an_error() -> None:
    with pytest.raises(ValidationError):
        Guard(())


def test_a_hand_made_guard_watches_from_the_beginning(store: Store) -> None:
    store.append(CourseCreated(course_name="Algebra"))
    fresh = Guard(tuple(CourseCreated.to_conditions(course_name="History")))
    taken = Guard(tuple(CourseCreated.to_conditions(course_name="Algebra")))

    store.append(CourseCreated(course_name="History"), fresh)

    with pytest.raises(ConcurrentAppendError):
        store.append(CourseCreated(course_name="Algebra"), taken)


def test_a_stale_ack_raises_and_changes_nothing(group: Store, claim: Claim) -> None:
    group.groups.release(claim)
    second = claim_device(group, "w-2")

    with pytest.raises(StaleClaim):
        group.groups.ack(claim)

    assert second is not None
    group.groups.ack(second)
    assert group.groups.list()[0].pending == 0


def test_a_stale_release_or_extension_raises_and_changes_nothing(
    group: Store, claim: Claim
) -> None:
    group.groups.ack(claim, claim.messages[0].global_position)

    with pytest.raises(StaleClaim):
        group.groups.release(claim)
    with pytest.raises(StaleClaim):
        group.groups.extend(claim)

    assert positions(claim_device(group)) == [2]


def test_an_ack_for_another_groups_offset_raises_and_changes_nothing(
    group: Store, claim: Claim
) -> None:
    group.groups.register("other")
    forged = replace(claim, group_id="other")

    with pytest.raises(StaleClaim):
        group.groups.ack(forged)

    assert group.groups.list()[0].claimed == 1


def test_an_offset_does_not_move_backwards(group: Store, claim: Claim) -> None:
    group.groups.ack(claim, 1)
    second = claim_device(group)
    assert second is not None

    with pytest.raises(InvalidAck):
        group.groups.ack(second, 1)
    with pytest.raises(InvalidAck):
        group.groups.ack(second, 3)  # nor beyond what is routed

    assert group.groups.list()[0].claimed == 1


def test_a_reset_moves_offsets_back_and_invalidates_claims_in_flight(
    group: Store, claim: Claim
) -> None:
    group.groups.reset("group")

    with pytest.raises(StaleClaim):
        group.groups.ack(claim)

    assert positions(claim_device(group)) == positions(claim)


def test_after_a_reset_a_claim_shows_what_was_handled_before(group: Store, claim: Claim) -> None:
    group.groups.ack(claim, claim.messages[0].global_position)
    group.append(DeviceSeen(device_id="b"))

    group.groups.reset("group")

    seen = []
    while (again := claim_device(group)) is not None:
        seen.append((positions(again), again.replaying))
        group.groups.ack(again)
    assert seen == [([1], True), ([2], False), ([3], False)]


def test_a_claim_has_a_lease_and_a_lapsed_one_can_be_taken_over(
    group: Store, database_url: str
) -> None:
    group.append(DeviceSeen(device_id="a"))
    hung = group.groups.claim_next(
        "group", partition_by="device_id", handled_types=[DeviceSeen], lease=0.001
    )
    wait_until(
        database_url,
        "select clock_timestamp() > claimed_at + interval '0.1 seconds'"
        " from penstock.partition_states",
    )

    taken = claim_device(group, "w-2")

    assert hung is not None
    assert taken is not None
    assert positions(taken) == positions(hung)
    assert taken.attempts == 2
    with pytest.raises(StaleClaim):
        group.groups.ack(hung)


def test_an_extended_claim_is_not_taken_over(group: Store, database_url: str) -> None:
    group.append(DeviceSeen(device_id="a"))
    claim = group.groups.claim_next(
        "group", partition_by="device_id", handled_types=[DeviceSeen], lease=0.05
    )
    assert claim is not None
    group.groups.extend(claim, timedelta(minutes=1))

    wait_until(
        database_url,
        "select clock_timestamp() > claimed_at + interval '0.1 seconds'"
        " from penstock.partition_states",
    )

    assert claim_device(group, "w-2") is None


def test_poison_stops_its_partition_and_not_the_group(group: Store) -> None:
    group.append([DeviceSeen(device_id="poison"), DeviceSeen(device_id="good")])
    handled = []

    def handle(claim: Claim) -> None:
        if claim.partition_value["device_id"] == "poison":
            raise ArithmeticError("cannot be handled")
        handled.append(claim.partition_key)

    worker = Worker(
        group,
        "group",
        handle,
        partition_by="device_id",
        handled_types=[DeviceSeen],
        on_failure=FailurePolicy.park(attempts=2, delay=0),
    )
    while worker.run_once():
        pass

    (parked,) = group.groups.parked("group")
    assert handled == ["device_id:good"]
    assert (parked.partition_key, parked.attempts) == ("device_id:poison", 2)
    assert parked.error == "ArithmeticError: cannot be handled"
    assert group.groups.list()[0].parked == 1


def test_a_parked_partition_can_be_resumed(group: Store, claim: Claim) -> None:
    group.groups.release(claim, error="it failed", park=True)
    assert claim_device(group) is None

    resumed = group.groups.resume("group", "device_id:a")

    again = claim_device(group)
    assert resumed == 1
    assert again is not None
    assert (positions(again), again.attempts) == (positions(claim), 1)
    assert group.groups.resume("group") == 0


@pytest.mark.parametrize("delay", [60, timedelta(minutes=1)])
def test_a_delayed_partition_is_not_claimed_before_its_time(
    group: Store, claim: Claim, delay: Duration
) -> None:
    group.groups.release(claim, delay=delay, error="not yet")

    assert claim_device(group) is None


def test_an_attempt_without_an_error_does_not_count(group: Store, claim: Claim) -> None:
    group.groups.release(claim)

    again = claim_device(group)

    assert again is not None
    assert again.attempts == 1


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("plain", "device_id:plain"),
        ("a|b", r"device_id:a\|b"),
        ("a:b", r"device_id:a\:b"),
        ("a\\b", r"device_id:a\\b"),
        (r"\|:", r"device_id:\\\|\:"),
        ("", "device_id:"),
    ],
)
def test_a_partition_key_escapes_its_separators(group: Store, value: str, key: str) -> None:
    group.append(DeviceSeen(device_id=value))

    claim = claim_device(group)

    assert claim is not None
    assert claim.partition_key == key
    assert claim.partition_value == {"device_id": value}


def test_a_changed_partition_by_is_an_error_until_the_group_is_reset(
    group: Store, claim: Claim
) -> None:
    with pytest.raises(PartitionByChanged):
        claim_student(group)

    group.groups.reset("group")
    group.append(UserJoinedCourse(course_name="Algebra", user_id="joe"))

    again = claim_student(group)
    assert again is not None
    assert again.partition_key == "course_name:Algebra|user_id:joe"
    assert not again.replaying


def test_key_pair_ids_are_those_of_the_index(group: Store, claim: Claim, database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        row = connection.execute("select penstock.key_pair('device_id', 'a')").fetchone()

    assert row == (claim.key_pair_ids[0],)


def test_a_group_that_was_never_registered_is_an_error(store: Store) -> None:
    store.declare(DeviceSeen, DeviceRemoved)

    with pytest.raises(GroupNotFound):
        claim_device(store)
    for call in (store.groups.stop, store.groups.start, store.groups.reset):
        with pytest.raises(GroupNotFound):
            call("group")


@pytest.mark.parametrize(
    "arguments",
    [
        {"partition_by": []},
        {"partition_by": ""},
        {"partition_by": list("abcdef")},
        {"handled_types": []},
        {"handled_types": "device.seen"},
        {"batch_size": 0},
        {"lease": 0},
        {"lease": -1},
        {"lease": timedelta(days=2)},
        {"worker_id": "\0"},
    ],
)
def test_bad_input_is_refused_and_changes_nothing(
    group: Store, arguments: dict[str, object]
) -> None:
    asked = {"partition_by": "course_name", "handled_types": SCHOOL, **arguments}

    with pytest.raises(ValidationError):
        group.groups.claim_next("group", **asked)  # type: ignore[arg-type]

    assert group.groups.list()[0].partition_by is None
