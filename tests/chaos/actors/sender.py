"""Offers records to a queue."""

from __future__ import annotations

from functools import partial
from uuid import uuid4

from tests.chaos.actors.actor import Actor, play
from tests.chaos.names import MAIL, MAIL_STREAM, TRIED, WRITTEN


def send(actor: Actor) -> None:
    with actor.store() as store:
        queue = store.queue(MAIL)
        while actor.goes_on(0.05):
            key = str(uuid4())
            actor.note(TRIED, key=key, stream=MAIL_STREAM)
            offset = actor.patiently(partial(queue.offer, {"key": key}, id=key))
            actor.note(WRITTEN, key=key, position=offset)


main = play(send)
