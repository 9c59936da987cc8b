"""Opens courses, one after the other, and asks for seats in the latest: more than there are."""

from __future__ import annotations

from uuid import uuid4

from penstock import Store
from tests.chaos.actors.actor import Actor, play
from tests.chaos.actors.school import Opened, Requested
from tests.chaos.names import TRIED, WRITTEN

STUDENTS = 6


def apply(actor: Actor) -> None:
    courses: list[str] = []
    with actor.store() as store:
        while actor.goes_on(0.1):
            if not courses or actor.random.random() < 0.1:
                courses.append(_open(actor, store))
            student = f"student {actor.random.randrange(STUDENTS)}"
            course = actor.random.choice(courses[-3:])
            request = Requested(course=course, student=student, key=str(uuid4()))
            _append(actor, store, request)


def _open(actor: Actor, store: Store) -> str:
    course = str(uuid4())
    _append(actor, store, Opened(course=course, seats=actor.random.randint(2, 6), key=course))
    return course


def _append(actor: Actor, store: Store, message: Opened | Requested) -> None:
    message = message.with_id(message.key)
    actor.note(TRIED, key=message.key, stream=f"{message.message_type}-{message.key}")
    actor.patiently(lambda: store.append(message))
    actor.note(WRITTEN, key=message.key, position=0)


main = play(apply)
