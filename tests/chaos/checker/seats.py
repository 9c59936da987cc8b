"""Seats: never more than there are, none denied while there is one, each request decided once.

The log tells in which order it was decided: a denial is right if at its place all seats are taken.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.chaos.checker.complaint import DISORDER, DOUBLED, INVENTED, LOST, STALE, Complaint
from tests.chaos.checker.consumers import compare
from tests.chaos.checker.evidence import Evidence, Row
from tests.chaos.names import DENIED, OPENED, REQUESTED, TAKEN, WELCOMED


def check_seats(evidence: Evidence) -> Iterator[Complaint]:
    yield from _decided_rightly(evidence)
    yield from _decided_once(evidence)
    yield from _welcomed_once(evidence)


def _decided_rightly(evidence: Evidence) -> Iterator[Complaint]:
    seats = {row.data["course"]: row.data["seats"] for row in evidence.category(OPENED)}
    taken: Counter[str] = Counter()
    for row in evidence.log:
        course = str(row.data.get("course"))
        if row.type == TAKEN:
            taken[course] += 1
            if taken[course] > seats.get(course, 0):
                text = f"seat {taken[course]} of {seats.get(course, 0)} in {course} was taken"
                yield Complaint(STALE, text)
        elif row.type == DENIED and taken[course] < seats.get(course, 0):
            text = f"{course} had {taken[course]} of {seats[course]} seats taken"
            yield Complaint(STALE, f"{text} when one was denied at {row.at}")


def _decided_once(evidence: Evidence) -> Iterator[Complaint]:
    requests = {row.data["key"]: row for row in evidence.category(REQUESTED)}
    decided = [row for row in evidence.log if row.type in (TAKEN, DENIED) and _request(row)]
    counts = Counter(map(_request, decided))
    for request in requests.keys() - counts.keys():
        yield Complaint(LOST, f"request {request} was not decided")
    for request, count in counts.items():
        if request not in requests:
            yield Complaint(INVENTED, f"request {request} was decided, and never made")
        elif count > 1:
            yield Complaint(DOUBLED, f"request {request} was decided {count} times")
    order: dict[str, list[int]] = defaultdict(list)
    for row in decided:
        if (request := requests.get(_request(row))) is not None:
            order[request.data["course"]].append(request.at)
    for course, positions in order.items():
        if any(earlier > later for earlier, later in pairwise(positions)):
            yield Complaint(DISORDER, f"requests for {course} were not decided as they came")


def _welcomed_once(evidence: Evidence) -> Iterator[Complaint]:
    wanted = Counter(row.at for row in evidence.category(TAKEN))
    welcomed = evidence.category(WELCOMED)
    yield from compare("greeters", wanted, Counter(row.data["seat"] for row in welcomed))
    order: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row in welcomed:
        order[row.data["course"], row.data["student"]].append(row.data["seat"])
    for (course, student), seats in order.items():
        if any(earlier > later for earlier, later in pairwise(seats)):
            yield Complaint(DISORDER, f"{student} was not welcomed in {course} as seats were taken")


def _request(row: Row) -> str:
    return str(row.data.get("request") or "")
