"""Penstock: a consumer, a session, a worker, a dispatcher and a follower; or fifty that sleep."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

import penstock
from penstock import Claim, Consumer, Dispatcher, Store, TypedMessage, Worker

EACH = 10  # of each kind, of the fifty


class Sold(TypedMessage, type="Sold"):
    number: str


def handled(*_: object) -> None:
    print(time.monotonic(), flush=True)


def waiting(store: Store, kind: str, category: str = "sale", name: str = "bench") -> None:
    """Wait for ever."""
    if kind == "consumer":
        Consumer(store, category, name, handlers={"Sold": handled}, positions="table").run()
    elif kind == "session":
        session = store.queue(category).create_consumer(name)
        while session.poll(3600):
            handled()
    elif kind == "worker":
        Worker(store, name, _claimed, partition_by="number", handled_types=[Sold]).run()
    elif kind == "dispatcher":
        dispatcher = Dispatcher(store, concurrency=1, owner=name)
        dispatcher.handler(category)(handled)
        dispatcher.run()
    else:
        for _ in store.follow_category(category):
            handled()


def _claimed(claim: Claim) -> None:
    handled()


def write(store: Store, kind: str, number: int) -> None:
    """Write one message for a waiter of this kind."""
    if kind == "session":
        store.queue("sale").offer(number)
    elif kind == "worker":
        store.append(Sold(number=str(number % 10)))
    elif kind == "dispatcher":
        store.outbox.enqueue("sale", {"number": number})
    else:
        store.write_message(f"sale-{number}", "Sold", {"number": str(number)})


def sleepers(store: Store) -> None:
    """Let fifty wait for what is never written."""
    for kind in ("consumer", "session", "worker", "dispatcher", "follower"):
        for number in range(EACH):
            arguments = (store, kind, "nothing", f"{kind}-{number}")
            threading.Thread(target=waiting, args=arguments, daemon=True).start()


def main(url: str, what: str, kind: str = "", count: str = "0", pause: str = "0") -> None:
    if what == "install":
        penstock.install(url)
        return
    with penstock.connect(url, wake_up=kind != "polling", pool_max_size=60) as store:
        if what == "sleep":
            sleepers(store)
            print("asleep", flush=True)
            sys.stdin.read()
        elif what == "wait":
            store.groups.register("bench")
            _ready(lambda: waiting(store, kind), store)
        else:
            for number in range(int(count)):
                time.sleep(float(pause))
                write(store, kind, number)
                print(time.monotonic(), flush=True)


def _ready(wait: Callable[[], None], store: Store) -> None:
    """Wait, and say so when notifications arrive."""
    threading.Thread(target=wait, daemon=True).start()
    while not (store.context.wake_ups and store.context.wake_ups.is_listening):
        time.sleep(0.01)
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
