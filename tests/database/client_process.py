"""A client in a process of its own: it writes, consumes, claims, appends and polls over and over.

It prints "ready" once each kind of call has worked, and stops at a line on its stdin. Then it
prints as JSON how many calls succeeded, how often each error came, and the ids of what it wrote. It
runs with the package that is on its path: the tests give it that of 0.1.
"""

from __future__ import annotations

import json
import select
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import penstock
from penstock import CommitMode, Consumer, RecordedMessage, Store, TypedMessage


class Seen(TypedMessage, type="upgrade.device_seen"):
    device_id: str


def main(url: str) -> None:
    with penstock.connect(url) as store:
        work = Work(store)
        work.groups.register_consumer_group("devices")  # of 0.1
        for call in work.calls():
            call()
        print("ready", flush=True)
        while not select.select([sys.stdin], [], [], 0)[0]:
            work.round()
        work.round()
    print(json.dumps({"done": work.done, "errors": dict(work.errors), "written": work.written}))


class Work:
    """The calls, and what came of them."""

    def __init__(self, store: Store) -> None:
        self.store = store
        #: in 0.1 their calls are methods of the store
        self.groups: Any = store if hasattr(store, "claim_next") else store.groups
        self.done = 0
        self.errors: Counter[str] = Counter()
        self.written: list[str] = []
        self.consumer = Consumer(store, "order", "mailer", handlers={"Placed": handle})
        self.queue = store.queue("mail")
        self.session = self.queue.create_consumer("reader", CommitMode.AUTO_COMMIT)

    def calls(self) -> Iterator[Callable[[], object]]:
        yield self.write
        yield self.append
        yield self.claim
        yield self.consumer.run_once
        yield self.dispatch
        yield self.poll

    def round(self) -> None:
        for call in self.calls():
            try:
                call()
            except Exception as error:
                self.errors[f"{type(error).__name__}: {str(error).partition(' (')[0]}"] += 1
            else:
                self.done += 1

    def write(self) -> None:
        id = str(uuid4())
        self.store.write_message("order-1", "Placed", {"n": 1}, id=id)
        self.written.append(id)

    def append(self) -> None:
        _, guard = self.store.read(Seen.to_conditions(device_id="d-1"), limit=1)
        self.store.append(Seen(device_id="d-1"), guard=guard)

    def claim(self) -> None:
        claim = self.groups.claim_next(
            "devices", partition_by="device_id", handled_types=[Seen], worker_id="w"
        )
        if claim is not None:
            self.groups.ack(claim)

    def dispatch(self) -> None:
        self.store.outbox.enqueue("mail", b"hello")
        for message in self.store.outbox.claim("owner"):
            self.store.outbox.ack(message)

    def poll(self) -> None:
        self.queue.offer("hello")
        self.session.poll()


def handle(message: RecordedMessage) -> None:
    """Handle a message."""


if __name__ == "__main__":
    main(sys.argv[1])
