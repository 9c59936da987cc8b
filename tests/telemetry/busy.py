"""A store in which something of every kind is waiting, claimed, parked or failed."""

from __future__ import annotations

from penstock import Consumer, FailurePolicy, RecordedMessage, Store
from tests.groups.school import DeviceSeen, claim_device
from tests.outbox.outboxes import sql


def busy(store: Store) -> None:
    """Leave traces of everybody who can lag behind, hold a claim or fail."""
    store.write_message("order-1", "Placed")
    park_one(store)
    store.write_message("order-2", "Placed")
    store.queue("mail").create_consumer("reader")
    store.queue("mail").offer("hello")
    hold_claim(store)
    park_partition(store)
    store.outbox.enqueue("mail")
    store.outbox.fail(store.outbox.claim("me"), "no such address")


def park_one(store: Store, category: str = "order", consumer_id: str = "mailer") -> None:
    """Let a consumer park what it finds."""

    def fail(message: RecordedMessage) -> None:
        raise RuntimeError("no such address")

    Consumer(
        store,
        category,
        consumer_id,
        handlers={"Placed": fail},
        on_failure=FailurePolicy.park(attempts=1),
    ).run_once()


def hold_claim(store: Store) -> None:
    """Claim a partition of the group, and keep it."""
    store.groups.register("group")
    store.append(DeviceSeen(device_id="held"))
    assert claim_device(store) is not None


def park_partition(store: Store) -> None:
    """Park another one."""
    store.append(DeviceSeen(device_id="parked"))
    claim = claim_device(store)
    assert claim is not None
    store.groups.release(claim, error="no seats", park=True)


def an_hour_passes(store: Store) -> None:
    """Make everything an hour older."""
    for change in (
        "update message_store.messages set time = time - interval '1 hour'",
        "update penstock.partition_states set claimed_at = claimed_at - interval '1 hour'",
        "update penstock.outbox set due = due - interval '1 hour',"
        " lease_until = lease_until - interval '1 hour'",
    ):
        sql(store, change)
