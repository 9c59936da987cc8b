"""The demo's process is killed, and the next one goes on, however soon it starts."""

from __future__ import annotations

from penstock import ClaimedMessage, Dispatcher, Store
from penstock.demo.work import run_until_empty


def test_it_waits_for_what_a_killed_process_has_claimed(store: Store) -> None:
    store.outbox.enqueue("shop.transform", {})
    store.outbox.claim("a process that was killed", lease=1.0)
    handled: list[str] = []
    dispatcher = Dispatcher(store)

    @dispatcher.handler("shop.transform")
    def transform(message: ClaimedMessage) -> None:
        handled.append(message.topic)

    run_until_empty(store, dispatcher)

    assert handled == ["shop.transform"]
