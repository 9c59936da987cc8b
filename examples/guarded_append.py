"""A rule over many streams, decided by many at once: a course has 20 seats, and 30 want one."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import penstock
from penstock import Decider, TypedMessage

COURSE = f"Algebra {penstock.new_id()}"


class CourseOpened(TypedMessage, type="course.opened"):
    course: str
    seats: int


class SeatTaken(TypedMessage, type="seat.taken"):
    course: str
    student: str


def evolve(free: int, event: TypedMessage) -> int:
    return event.seats if isinstance(event, CourseOpened) else free - 1


def take(free: int, wanted: SeatTaken) -> Iterable[SeatTaken]:
    return [wanted] if free > 0 else []


SEATS = Decider[int, SeatTaken](initial=0, evolve=evolve, decide=take)
BOUNDARY = [*CourseOpened.to_conditions(course=COURSE), *SeatTaken.to_conditions(course=COURSE)]


def main() -> None:
    opened = CourseOpened(course=COURSE, seats=1)
    taken = SeatTaken(course=COURSE, student="ada")
    SEATS.given(opened).when(taken).then(taken)
    SEATS.given(opened, taken).when(taken).then()
    print("the rule holds on paper")

    with penstock.connect() as store:
        store.append(CourseOpened(course=COURSE, seats=20))

        def enrol(number: int) -> bool:
            wanted = SeatTaken(course=COURSE, student=f"student {number}")
            return store.decide(SEATS, wanted, BOUNDARY, attempts=100) is not None

        with ThreadPoolExecutor(8) as clerks:
            enrolled = sum(clerks.map(enrol, range(30)))
        messages, _ = store.read(SeatTaken.to_conditions(course=COURSE))
        print(f"30 students at once: {enrolled} enrolled, {len(messages)} seats taken")


if __name__ == "__main__":
    main()

# Output:
# the rule holds on paper
# 30 students at once: 20 enrolled, 20 seats taken
