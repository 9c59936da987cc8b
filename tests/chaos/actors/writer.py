"""Writes to a few streams that others write to as well, each time with the version it has seen."""

from __future__ import annotations

from uuid import uuid4

from penstock import Store, WrongExpectedVersion
from tests.chaos.actors.actor import Actor, play
from tests.chaos.names import ACCOUNT, REFUSED, TRIED, WRITTEN

STREAMS = 6


def write(actor: Actor) -> None:
    with actor.store() as store:
        while actor.goes_on(0.05):
            _write_one(actor, store, f"{ACCOUNT}-{actor.random.randrange(STREAMS)}")


def _write_one(actor: Actor, store: Store, stream_name: str) -> None:
    version = actor.patiently(lambda: store.stream_version(stream_name))
    expected = -1 if version is None else version
    key = str(uuid4())
    actor.note(TRIED, key=key, stream=stream_name, expected=expected)
    try:
        position = actor.patiently(
            lambda: store.write_message(
                stream_name, "Deposited", {"key": key}, id=key, expected_version=expected
            )
        )
        actor.note(WRITTEN, key=key, position=position)
    except WrongExpectedVersion:
        actor.note(REFUSED, key=key)


main = play(write)
