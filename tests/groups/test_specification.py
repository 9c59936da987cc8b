"""The test list of `specs/partitioned-consumer-groups.md`, item by item, both ways."""

from __future__ import annotations

import pytest

from penstock import ConcurrentAppendError, QueryCondition, Store, TypedMessage, typed
from tests import both_ways
from tests.groups.school import (
    CourseClosed,
    CourseCreated,
    DeviceRemoved,
    DeviceSeen,
    UserJoinedCourse,
    UserRegistered,
    claim_device,
    claim_student,
    positions,
)

store = both_ways.store


@pytest.fixture
def group(store: Store) -> Store:
    """A store with the registered group `group`."""
    store.groups.register("group")
    return store


@pytest.fixture
def algebra(group: Store) -> Store:
    """The specification's example: Algebra, joined by joe and by jake."""
    group.append(
        [
            CourseCreated(course_name="Algebra"),
            UserRegistered(user_id="joe", name="Joe"),
            UserJoinedCourse(course_name="Algebra", user_id="joe"),
            UserJoinedCourse(course_name="Algebra", user_id="jake"),
        ]
    )
    return group


# Consumer group lifecycle


def test_01_register_consumer_group_creates_an_active_group(store: Store) -> None:
    store.groups.register("group")

    assert [(one.group_id, one.status) for one in store.groups.list()] == [("group", "active")]


def test_02_register_consumer_group_is_idempotent(store: Store) -> None:
    store.groups.register("group")

    store.groups.register("group")

    assert len(store.groups.list()) == 1


def test_03_consumer_group_active_tells_active_from_stopped_and_nonexistent(group: Store) -> None:
    group.groups.register("stopped")

    group.groups.stop("stopped")

    assert group.groups.is_active("group")
    assert not group.groups.is_active("stopped")
    assert not group.groups.is_active("nonexistent")


def test_04_stop_and_start_toggle_the_status(group: Store) -> None:
    group.groups.stop("group")
    stopped = group.groups.is_active("group")

    group.groups.start("group")

    assert (stopped, group.groups.is_active("group")) == (False, True)


def test_05_reset_consumer_group_deletes_all_offsets(group: Store) -> None:
    group.append(DeviceSeen(device_id="a"))
    claim = claim_device(group)
    assert claim is not None
    group.groups.ack(claim)

    group.groups.reset("group")

    assert group.groups.list()[0].partitions == 0
    again = claim_device(group)
    assert positions(again) == positions(claim)
    assert again is not None
    assert again.replaying


# claim_next (single attribute partition)


def test_06_bootstraps_offsets_for_new_partitions(group: Store) -> None:
    group.append([DeviceSeen(device_id="a"), DeviceSeen(device_id="b")])

    claim_device(group)

    assert group.groups.list()[0].partitions == 2


def test_07_returns_nothing_when_no_messages_are_pending(group: Store) -> None:
    group.declare(DeviceSeen, DeviceRemoved)

    assert claim_device(group) is None


def test_08_returns_messages_for_the_next_unclaimed_partition_with_the_right_shape(
    group: Store,
) -> None:
    appended = group.append(DeviceSeen(device_id="a", reading=7))

    claim = claim_device(group)

    assert claim is not None
    assert claim.partition_key == "device_id:a"
    assert claim.partition_value == {"device_id": "a"}
    assert [typed(one) for one in claim.messages] == [DeviceSeen(device_id="a", reading=7)]
    assert positions(claim) == [appended.position]
    assert len(claim.key_pair_ids) == 1
    assert isinstance(claim.offset_id, int)
    assert not claim.replaying
    assert claim.guard.conditions == (
        QueryCondition("device.seen", "device_id", "a"),
        QueryCondition("device.removed", "device_id", "a"),
    )


def test_09_returns_multiple_pending_messages_for_the_same_partition(group: Store) -> None:
    appended = group.append([DeviceSeen(device_id="a", reading=n) for n in range(3)])

    assert positions(claim_device(group)) == list(appended.positions)


def test_10_skips_claimed_partitions_so_a_second_worker_gets_another_one(group: Store) -> None:
    group.append([DeviceSeen(device_id="a"), DeviceSeen(device_id="b")])

    first, second = claim_device(group, "w-1"), claim_device(group, "w-2")

    assert first is not None
    assert second is not None
    assert {first.partition_key, second.partition_key} == {"device_id:a", "device_id:b"}


def test_11_returns_nothing_when_all_partitions_are_claimed(group: Store) -> None:
    group.append(DeviceSeen(device_id="a"))
    claim_device(group, "w-1")

    assert claim_device(group, "w-2") is None


def test_12_respects_the_handled_types_filter(group: Store) -> None:
    group.append([DeviceSeen(device_id="a"), DeviceRemoved(device_id="a")])

    claim = claim_device(group, types=[DeviceRemoved])

    assert claim is not None
    assert [one.type for one in claim.messages] == ["device.removed"]


def test_13_only_returns_messages_after_the_last_position(group: Store) -> None:
    first = group.append([DeviceSeen(device_id="a"), DeviceSeen(device_id="a")])
    claim = claim_device(group)
    assert claim is not None

    group.groups.ack(claim, first.positions[0])

    assert positions(claim_device(group)) == [first.positions[1]]


def test_14_returns_nothing_for_a_stopped_consumer_group(group: Store) -> None:
    group.append(DeviceSeen(device_id="a"))

    group.groups.stop("group")

    assert claim_device(group) is None


def test_15_prioritizes_the_partition_with_the_earliest_pending_message(group: Store) -> None:
    group.append([DeviceSeen(device_id="late"), DeviceSeen(device_id="early")])
    claim = claim_device(group)
    assert claim is not None
    group.groups.ack(claim)

    group.append(DeviceSeen(device_id="late"))

    following = claim_device(group)
    assert following is not None
    assert following.partition_key == "device_id:early"


def test_16_bootstraps_newly_appeared_partitions_on_subsequent_calls(group: Store) -> None:
    group.append(DeviceSeen(device_id="a"))
    claim_device(group)

    group.append(DeviceSeen(device_id="b"))

    second = claim_device(group)
    assert second is not None
    assert second.partition_key == "device_id:b"


def test_17_returns_a_guard_with_conditions_only_for_the_names_each_type_has(group: Store) -> None:
    group.append([CourseCreated(course_name="Algebra"), UserRegistered(user_id="joe", name="Joe")])

    claim = group.groups.claim_next(
        "group", partition_by="course_name", handled_types=[CourseCreated, UserRegistered]
    )

    assert claim is not None
    assert claim.guard.conditions == (QueryCondition("course.created", "course_name", "Algebra"),)


def test_18_the_guard_can_be_used_for_optimistic_concurrency_on_append(group: Store) -> None:
    group.append(DeviceSeen(device_id="a"))
    claim = claim_device(group)
    assert claim is not None

    appended = group.append(DeviceRemoved(device_id="a"), guard=claim.guard)

    assert appended.position > claim.last_position


def test_19_the_guard_detects_concurrent_conflicting_writes(group: Store) -> None:
    group.append(DeviceSeen(device_id="a"))
    claim = claim_device(group)
    assert claim is not None
    conflicting = group.append(DeviceSeen(device_id="a"))

    with pytest.raises(ConcurrentAppendError) as raised:
        group.append(DeviceRemoved(device_id="a"), guard=claim.guard)

    assert (raised.value.type, raised.value.position) == ("device.seen", conflicting.position)


# claim_next (composite partition: conditional AND)


def test_20_only_messages_with_all_attributes_create_composite_partitions(group: Store) -> None:
    group.append([CourseCreated(course_name="Algebra"), UserRegistered(user_id="joe", name="Joe")])
    without = claim_student(group)

    group.append(UserJoinedCourse(course_name="Algebra", user_id="joe"))
    claim = claim_student(group)

    assert without is None
    assert claim is not None
    assert claim.partition_key == "course_name:Algebra|user_id:joe"


def test_21_fetch_returns_messages_with_a_single_partition_attribute(algebra: Store) -> None:
    claim = claim_student(algebra)

    assert claim is not None
    assert [typed(one) for one in claim.messages] == [
        CourseCreated(course_name="Algebra"),
        UserRegistered(user_id="joe", name="Joe"),
        UserJoinedCourse(course_name="Algebra", user_id="joe"),
    ]


def test_22_different_composite_partitions_can_be_claimed_in_parallel(algebra: Store) -> None:
    first, second = claim_student(algebra, "w-1"), claim_student(algebra, "w-2")

    assert first is not None
    assert second is not None
    assert first.partition_value == {"course_name": "Algebra", "user_id": "joe"}
    assert second.partition_value == {"course_name": "Algebra", "user_id": "jake"}


def test_23_messages_with_all_attributes_must_match_all_values(algebra: Store) -> None:
    claim = claim_student(algebra)

    assert claim is not None
    assert UserJoinedCourse(course_name="Algebra", user_id="jake") not in [
        typed(one) for one in claim.messages
    ]


def test_24_messages_that_match_all_attributes_are_not_duplicated(algebra: Store) -> None:
    found = positions(claim_student(algebra))

    assert found == sorted(set(found))


def test_25_messages_that_match_one_attribute_with_a_wrong_other_are_excluded(
    algebra: Store,
) -> None:
    algebra.append(UserJoinedCourse(course_name="History", user_id="joe"))

    claim = claim_student(algebra)

    assert claim is not None
    assert claim.partition_value["course_name"] == "Algebra"
    assert all(one.data.get("course_name") != "History" for one in claim.messages)


def test_26_guard_conditions_only_for_the_names_each_message_type_has(algebra: Store) -> None:
    claim = claim_student(algebra)

    assert claim is not None
    assert claim.guard.conditions == (
        QueryCondition("course.created", "course_name", "Algebra"),
        QueryCondition("user.registered", "user_id", "joe"),
        QueryCondition("user.joined_course", "course_name", "Algebra"),
        QueryCondition("user.joined_course", "user_id", "joe"),
        QueryCondition("course.closed", "course_name", "Algebra"),
    )


def test_27_the_guard_detects_concurrent_writes_in_a_composite_partition(algebra: Store) -> None:
    claim = claim_student(algebra)
    assert claim is not None
    algebra.append(UserJoinedCourse(course_name="Algebra", user_id="mary"))  # not this partition
    algebra.append(UserJoinedCourse(course_name="History", user_id="joe"))  # nor this one
    algebra.append(CourseClosed(course_name="Algebra"), guard=claim.guard)

    with pytest.raises(ConcurrentAppendError):
        algebra.append(CourseClosed(course_name="Algebra"), guard=claim.guard)


# ack / release


def test_28_ack_advances_the_offset_and_releases_the_claim(group: Store) -> None:
    group.append([DeviceSeen(device_id="a"), DeviceSeen(device_id="a")])
    claim = claim_device(group)
    assert claim is not None

    group.groups.ack(claim, claim.messages[0].global_position)

    following = claim_device(group, "w-2")
    assert following is not None
    assert following.offset_id == claim.offset_id


def test_29_after_ack_a_subsequent_claim_skips_processed_messages(group: Store) -> None:
    group.append(DeviceSeen(device_id="a"))
    claim = claim_device(group)
    assert claim is not None
    group.groups.ack(claim)
    appended = group.append(DeviceSeen(device_id="a"))

    assert positions(claim_device(group)) == [appended.position]


def test_30_release_releases_the_claim_without_advancing(group: Store) -> None:
    group.append(DeviceSeen(device_id="a"))
    claim = claim_device(group)
    assert claim is not None

    group.groups.release(claim)

    assert group.groups.list()[0].claimed == 0
    assert group.groups.list()[0].pending == 1


def test_31_after_release_the_same_partition_is_claimed_again_with_the_same_messages(
    group: Store,
) -> None:
    group.append(DeviceSeen(device_id="a"))
    claim = claim_device(group)
    assert claim is not None
    group.groups.release(claim)

    assert positions(claim_device(group, "w-2")) == positions(claim)


# clear


def test_32_clears_consumer_groups_offsets_and_what_belongs_to_them(algebra: Store) -> None:
    claim_student(algebra)

    algebra.groups.clear()

    assert algebra.groups.list() == []
    assert not algebra.groups.is_active("group")


# Message class methods


def test_33_payload_attribute_names_returns_the_names_of_a_message_class() -> None:
    assert UserJoinedCourse.payload_attribute_names == ("course_name", "user_id")


def test_34_payload_attribute_names_is_empty_for_a_bare_message_class() -> None:
    class Bare(TypedMessage, type="bare"):
        pass

    assert Bare.payload_attribute_names == ()
    assert TypedMessage.payload_attribute_names == ()


def test_35_to_conditions_returns_conditions_only_for_attributes_the_class_has() -> None:
    assert CourseCreated.to_conditions(course_name="Algebra", user_id="joe") == [
        QueryCondition("course.created", "course_name", "Algebra")
    ]


def test_36_to_conditions_returns_conditions_for_all_matching_attributes() -> None:
    assert UserJoinedCourse.to_conditions(course_name="Algebra", user_id="joe") == [
        QueryCondition("user.joined_course", "course_name", "Algebra"),
        QueryCondition("user.joined_course", "user_id", "joe"),
    ]


def test_37_to_conditions_returns_an_empty_list_when_no_attributes_match() -> None:
    assert CourseCreated.to_conditions(user_id="joe") == []


def test_the_usage_example_of_the_specification(store: Store) -> None:
    store.groups.register("enrollment-decider")
    store.append(CourseCreated(course_name="Algebra"))
    store.append(UserRegistered(user_id="joe", name="Joe"))
    store.append(UserJoinedCourse(course_name="Algebra", user_id="joe"))
    store.append(UserJoinedCourse(course_name="Algebra", user_id="jake"))

    result = store.groups.claim_next(
        "enrollment-decider",
        partition_by=["course_name", "user_id"],
        handled_types=[
            "course.created",
            "user.registered",
            "user.joined_course",
            "course.closed",
        ],
        worker_id="w-1",
    )

    assert result is not None
    assert [typed(one) for one in result.messages] == [
        CourseCreated(course_name="Algebra"),
        UserRegistered(user_id="joe", name="Joe"),
        UserJoinedCourse(course_name="Algebra", user_id="joe"),
    ]
    assert result.guard.conditions == (
        QueryCondition("course.created", "course_name", "Algebra"),
        QueryCondition("user.registered", "user_id", "joe"),
        QueryCondition("user.joined_course", "course_name", "Algebra"),
        QueryCondition("user.joined_course", "user_id", "joe"),
        QueryCondition("course.closed", "course_name", "Algebra"),
    )
    with store.transaction() as transaction:
        transaction.append(CourseClosed(course_name="Algebra"), guard=result.guard)
        transaction.groups.ack(result)

    messages, _ = store.read_partition({"course_name": "Algebra"}, [CourseClosed])
    assert len(messages) == 1
    with pytest.raises(ConcurrentAppendError):
        store.append(CourseClosed(course_name="Algebra"), guard=result.guard)
