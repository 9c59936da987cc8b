"""The messages of the specification's example: courses and those who join them."""

from __future__ import annotations

from penstock import Claim, Store, TypedMessage


class CourseCreated(TypedMessage, type="course.created"):
    course_name: str


class UserRegistered(TypedMessage, type="user.registered"):
    user_id: str
    name: str


class UserJoinedCourse(TypedMessage, type="user.joined_course"):
    course_name: str
    user_id: str


class CourseClosed(TypedMessage, type="course.closed"):
    course_name: str


class DeviceSeen(TypedMessage, type="device.seen"):
    device_id: str
    reading: int = 0


class DeviceRemoved(TypedMessage, type="device.removed"):
    device_id: str


SCHOOL: list[type[TypedMessage]] = [CourseCreated, UserRegistered, UserJoinedCourse, CourseClosed]
DEVICES: list[type[TypedMessage]] = [DeviceSeen, DeviceRemoved]


def claim_device(
    store: Store,
    worker_id: str = "w-1",
    types: list[type[TypedMessage]] = DEVICES,
    group_id: str = "group",
) -> Claim | None:
    """Claim a partition of one attribute."""
    return store.groups.claim_next(
        group_id, partition_by="device_id", handled_types=types, worker_id=worker_id
    )


def claim_student(store: Store, worker_id: str = "w-1") -> Claim | None:
    """Claim a partition of two attributes."""
    return store.groups.claim_next(
        "group", partition_by=["course_name", "user_id"], handled_types=SCHOOL, worker_id=worker_id
    )


def positions(claim: Claim | None) -> list[int]:
    """Return the global positions of a claim's messages."""
    assert claim is not None
    return [message.global_position for message in claim.messages]
