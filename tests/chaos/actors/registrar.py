"""Decides over the requests for seats, course by course, as a worker of a partitioned group.

What it returns is appended under the claim's guard, which watches requests and seats alike: so an
intruder who takes a seat meanwhile makes it decide again.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock import Claim, FailurePolicy, Store, Worker
from tests.chaos.actors.actor import ENDLESS, LEASE, Actor, play
from tests.chaos.actors.school import Denied, Requested, Taken, seats_left
from tests.chaos.names import REQUESTED


def work(actor: Actor) -> None:
    with actor.store() as store:
        worker = actor.patiently(
            lambda: Worker(
                store,
                "registrars",
                lambda claim: _decide(store, claim),
                partition_by="course",
                handled_types=[Requested, Taken],
                batch_size=5,
                lease=LEASE,
                on_failure=FailurePolicy.park(ENDLESS, delay=0.01, longest_delay=0.1),
                polling_interval_ms=50,
            )
        )
        worker.run()


def _decide(store: Store, claim: Claim) -> Iterator[Taken | Denied]:
    course = claim.partition_value["course"]
    left, _ = seats_left(store, course)
    for message in claim.messages:
        if message.type != REQUESTED:
            continue
        request = message.data["key"]
        if left > 0:
            yield Taken(course=course, student=message.data["student"], request=request)
        else:
            yield Denied(course=course, request=request)
        left -= 1


main = play(work)
