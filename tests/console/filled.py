"""A store with something of everything that the console shows: fine, waiting and failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock import Consumer, FailurePolicy, Message, Store, TypedMessage
from penstock.outbox.messages import JoinId, OutboxMessageId

#: markup in every field that applications write
SCRIPT = "<script>alert(1)</script>"


class Joined(TypedMessage, type="joined"):
    course: str
    user: str


class Left(TypedMessage, type="left"):
    course: str


@dataclass(frozen=True)
class Filled:
    """The names by which tests find what was written."""

    #: global position of the message whose fields have markup
    script: int
    failed: OutboxMessageId
    ready: OutboxMessageId
    join: JoinId


def fill(store: Store) -> Filled:
    """Write messages, consumers, a queue, a group, outbox messages and a join."""
    store.declare(Joined, Left)
    for number in range(30):
        opened = Message("Opened", {"number": number, "owner": {"email": "ada@example.com"}})
        store.write_message(f"account-{number % 10}", opened)
        store.write_message(f"account-{number % 10}", opened.follow("Deposited", {"amount": 7}))
    script = store.write_message(
        f"page-{SCRIPT}", f"T{SCRIPT}", {SCRIPT: SCRIPT}, {SCRIPT: SCRIPT},
        returning="global_position",
    )  # fmt: skip
    _consumers(store)
    _queue(store)
    _group(store)
    return Filled(script, *_outbox(store))


def _consumers(store: Store) -> None:
    def refuse_some(message: object) -> None:
        if getattr(message, "data", {}).get("number", 0) % 10 == 3:
            raise ValueError(f"cannot handle {SCRIPT}")

    parking = FailurePolicy.park(attempts=1)
    consumer = Consumer(store, "account", "billing", on_failure=parking)
    consumer.handler("Opened")(refuse_some)
    consumer.run_until_idle()
    store.write_message("account-1", "Closed")


def _queue(store: Store) -> None:
    queue = store.queue("letters")
    queue.offer_many([{"to": "ada"}, {"to": "joe"}, {"to": "eve"}])
    queue.commit_offset("postman", 1)


def _group(store: Store) -> None:
    for user in ("joe", "ada", "eve", f"eve{SCRIPT}"):
        store.append([Joined(course="Algebra", user=user)])
    how: dict[str, Any] = {"partition_by": ["course", "user"], "handled_types": [Joined]}
    store.groups.register("seats")
    parked = store.groups.claim_next("seats", **how)
    assert parked is not None
    store.groups.release(parked, park=True, error=f"no seat {SCRIPT}")
    assert store.groups.claim_next("seats", worker_id="worker-1", lease=3600, **how)
    done = store.groups.claim_next("seats", **how)
    assert done is not None
    store.groups.ack(done)


def _outbox(store: Store) -> tuple[OutboxMessageId, OutboxMessageId, JoinId]:
    join = store.joins.start("order-1", 3)
    for number in range(2):
        store.outbox.enqueue("email.send", {"number": number}, joins=[join], correlation_id="c-1")
    store.joins.enqueue_wait(join, on_complete_topic="order.ship")
    [first, second] = store.outbox.claim("worker-1", 2, topics=["email.send"])
    store.outbox.ack([first])
    store.outbox.fail([second], f"SMTP says no {SCRIPT}")
    ready = store.outbox.enqueue("invoice.print", {"card": "no. 4242", "text": SCRIPT})
    return second.id, ready, join
