"""Handles those transfers that are its own, as a member of a group of two, and notes each."""

from __future__ import annotations

from contextlib import suppress

from penstock import Consumer, RecordedMessage
from penstock.errors import PositionConflict, UnavailableError
from tests.chaos.actors.actor import Actor, play
from tests.chaos.names import HANDLED, TRANSFER


def consume(actor: Actor) -> None:
    def handle(message: RecordedMessage) -> None:
        actor.note(HANDLED, at=message.global_position)

    with actor.store() as store:
        while actor.goes_on():
            consumer = Consumer(
                store,
                TRANSFER,
                actor.name,
                positions="hybrid",
                consumer_group_member=int(actor.variant),
                consumer_group_size=2,
                position_update_interval=10,
                polling_interval_ms=50,
            )
            consumer.handler()(handle)
            # the one before it was killed and its last save came late; or no connection was free
            with suppress(PositionConflict, UnavailableError):
                consumer.run()
                return


main = play(consume)
