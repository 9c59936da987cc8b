"""Courses with few seats: what is said about them, and how a seat is decided on."""

from __future__ import annotations

from penstock import Guard, Store, TypedMessage
from tests.chaos.names import DENIED, OPENED, REQUESTED, TAKEN, WELCOMED


class Opened(TypedMessage, type=OPENED, unindexed=["key", "seats"]):
    course: str
    seats: int
    key: str


class Requested(TypedMessage, type=REQUESTED, unindexed=["key", "student"]):
    course: str
    student: str
    key: str


class Taken(TypedMessage, type=TAKEN, unindexed=["key", "request"]):
    course: str
    student: str
    key: str | None = None  # of who came without asking
    request: str | None = None  # of who asked before


class Denied(TypedMessage, type=DENIED, unindexed=["request"]):
    course: str
    request: str


class Welcomed(TypedMessage, type=WELCOMED, unindexed=["seat"]):
    course: str
    student: str
    seat: int


SCHOOL: list[type[TypedMessage]] = [Opened, Requested, Taken, Denied, Welcomed]


def seats_left(store: Store, course: str) -> tuple[int, Guard]:
    """Return how many seats a course has left, and the guard to decide under."""
    known, guard = store.read(
        [*Opened.to_conditions(course=course), *Taken.to_conditions(course=course)]
    )
    seats = sum(one.data["seats"] for one in known if one.type == OPENED)
    return seats - sum(one.type == TAKEN for one in known), guard
