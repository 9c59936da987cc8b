"""Does the steps of joins, and publishes notes and outcomes of joins to the log."""

from __future__ import annotations

from penstock import ClaimedMessage, Dispatcher, FailurePolicy
from penstock.errors import PermanentFailure
from tests.chaos.actors.actor import ENDLESS, LEASE, Actor, play
from tests.chaos.names import BROKEN, FINISHED, HANDLED, NOTE, OUTCOME, STEP


def dispatch(actor: Actor) -> None:
    with actor.store() as store:
        dispatcher = Dispatcher(
            store,
            concurrency=3,
            lease=LEASE,
            polling_interval_ms=50,
            on_failure=FailurePolicy.retry(ENDLESS, delay=0.02, longest_delay=0.2),
            keep_done=None,
        )

        @dispatcher.handler(STEP)
        def step(message: ClaimedMessage) -> None:
            assert isinstance(message.payload, dict)
            actor.note(HANDLED, message=str(message.id))
            if message.payload["do"] == "fail":
                raise PermanentFailure("it was to fail")
            if message.payload["do"] == "stumble" and message.attempts == 1:
                raise RuntimeError("it was to fail at first")

        dispatcher.publish(NOTE, f"{NOTE}-all")
        for topic in (FINISHED, BROKEN):
            dispatcher.publish(topic, _stream_of_join)
        dispatcher.run()


def _stream_of_join(message: ClaimedMessage) -> str:
    assert isinstance(message.payload, dict)
    return f"{OUTCOME}-{message.payload['join']}"


main = play(dispatch)
