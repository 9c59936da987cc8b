"""Reads all transfers and writes that it has seen each, in the transaction that moves its position.

Its position is in the table or in a stream: the part of its name after the hyphen says which.
"""

from __future__ import annotations

from contextlib import suppress

from penstock import Consumer, FailurePolicy, RecordedMessage, Transaction
from penstock.errors import PositionConflict, UnavailableError
from tests.chaos.actors.actor import ENDLESS, Actor, play
from tests.chaos.names import SEEN, TRANSFER


def consume(actor: Actor) -> None:
    def see(message: RecordedMessage, transaction: Transaction) -> None:
        transaction.write_message(
            f"{SEEN}-{actor.variant}", "Seen", {"source": message.global_position}
        )

    with actor.store() as store:
        while actor.goes_on():
            consumer = Consumer(
                store,
                TRANSFER,
                actor.variant,
                positions=actor.variant,
                transactional=True,
                polling_interval_ms=50,
                on_failure=FailurePolicy.retry(ENDLESS, delay=0.01, longest_delay=0.1),
            )
            consumer.handler()(see)
            # the one before it was killed and its last commit came late; or no connection was free
            with suppress(PositionConflict, UnavailableError):
                consumer.run()
                return


main = play(consume)
