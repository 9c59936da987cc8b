"""Three extractions side by side, and a transformation that begins when all of them are done."""

from __future__ import annotations

import json

import penstock
from penstock import ClaimedMessage, Dispatcher, JoinId, Store

CUSTOMER = f"customer-{penstock.new_id()}"
TABLES = ("customers", "orders", "products")


def main() -> None:
    with penstock.connect() as store:
        join_id = start(store)

        make_dispatcher(store).run_until_idle()

        join = store.joins.get(join_id)
        print(f"{join.status}: {join.completed_steps} of {join.expected_steps} steps completed")


def start(store: Store) -> JoinId:
    """Enqueue the extractions and what follows from them, all in one transaction."""
    with store.transaction() as tx:
        join_id = tx.joins.start(
            grouping_key=CUSTOMER,
            expected_steps=len(TABLES),
            metadata=json.dumps({"type": "etl", "phase": "extract"}),
        )
        for table in TABLES:
            message_id = tx.outbox.enqueue(f"extract.{table}", {"customer": CUSTOMER})
            tx.joins.attach(join_id, message_id)
        tx.joins.enqueue_wait(
            join_id,
            fail_if_any_step_failed=True,
            on_complete_topic="etl.transform",
            on_complete_payload={"customer": CUSTOMER},
        )
    return join_id


def make_dispatcher(store: Store) -> Dispatcher:
    """Return a dispatcher. Its handlers know nothing of joins: counting is automatic."""
    dispatcher = Dispatcher(store, concurrency=1)
    for table in TABLES:
        dispatcher.handler(f"extract.{table}")(extract)
    dispatcher.handler("etl.transform")(transform)
    return dispatcher


def extract(message: ClaimedMessage) -> None:
    print(message.topic)


async def transform(message: ClaimedMessage) -> None:
    print(message.topic, "of", message.payload == {"customer": CUSTOMER} and "our customer")


if __name__ == "__main__":
    main()

# Output:
# extract.customers
# extract.orders
# extract.products
# etl.transform of our customer
# completed: 3 of 3 steps completed
