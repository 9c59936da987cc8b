"""Welcomes each student who has a seat, in partitions of course and student."""

from __future__ import annotations

from penstock import Claim, FailurePolicy, Worker
from tests.chaos.actors.actor import ENDLESS, LEASE, Actor, play
from tests.chaos.actors.school import Taken, Welcomed


def work(actor: Actor) -> None:
    with actor.store() as store:
        worker = actor.patiently(
            lambda: Worker(
                store,
                "greeters",
                _welcome,
                partition_by=["course", "student"],
                handled_types=[Taken],
                batch_size=5,
                lease=LEASE,
                on_failure=FailurePolicy.park(ENDLESS, delay=0.01, longest_delay=0.1),
                polling_interval_ms=50,
            )
        )
        worker.run()


def _welcome(claim: Claim) -> list[Welcomed]:
    return [
        Welcomed(
            course=message.data["course"],
            student=message.data["student"],
            seat=message.global_position,
        )
        for message in claim.messages
    ]


main = play(work)
