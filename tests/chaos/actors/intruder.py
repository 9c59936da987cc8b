"""Takes seats without asking, under a guard of its own, in the courses that others decide on."""

from __future__ import annotations

from functools import partial
from uuid import uuid4

from penstock import ConcurrentAppendError, Store
from tests.chaos.actors.actor import Actor, play
from tests.chaos.actors.school import Taken, seats_left
from tests.chaos.names import OPENED, REFUSED, TAKEN, TRIED, WRITTEN


def intrude(actor: Actor) -> None:
    courses: list[str] = []
    position = 0
    with actor.store() as store:
        while actor.goes_on(0.1):
            fresh = actor.patiently(partial(store.get_category_messages, OPENED, position + 1))
            courses += [one.data["course"] for one in fresh]
            position = max([position, *(one.global_position for one in fresh)])
            if courses:
                _take_a_seat(actor, store, actor.random.choice(courses[-3:]))


def _take_a_seat(actor: Actor, store: Store, course: str) -> None:
    left, guard = actor.patiently(lambda: seats_left(store, course))
    if left < 1:
        return
    key = str(uuid4())
    seat = Taken(course=course, student="intruder", key=key).with_id(key)
    actor.note(TRIED, key=key, stream=f"{TAKEN}-{key}")
    try:
        actor.patiently(lambda: store.append(seat, guard))
        actor.note(WRITTEN, key=key, position=0)
    except ConcurrentAppendError:
        actor.note(REFUSED, key=key)


main = play(intrude)
