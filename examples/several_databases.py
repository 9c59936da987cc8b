"""Several databases: a provider maps each customer to one, and one dispatcher serves them all.

Here they are two embedded servers. Elsewhere they are two addresses: `penstock.connect(url)`.
"""

from __future__ import annotations

import penstock
from penstock import ClaimedMessage, Dispatcher, MappedStores, Store

RUN = penstock.new_id().hex
COUNTRIES = {"ada": "ch", "bob": "us", "eve": "ch"}


def main() -> None:
    with (
        penstock.connect(folder="europe") as europe,
        penstock.connect(folder="america") as america,
    ):
        stores = MappedStores({"ch": europe, "us": america}, COUNTRIES.__getitem__)
        for customer in COUNTRIES:
            place_order(stores, customer)

        make_dispatcher(stores).run_until_idle()

        for name, store in {"europe": europe, "america": america}.items():
            print(f"in {name}:", len(store.get_category_messages(f"order{RUN}")), "orders")


def place_order(stores: MappedStores[Store], customer: str) -> None:
    """Write the order where its customer lives; a join over its steps lives there too."""
    with stores.store_for(customer).transaction() as tx:
        tx.write_message(f"order{RUN}-{customer}", "Placed")
        join = tx.joins.start(customer, expected_steps=2)
        for step in ("pack", "bill"):
            tx.outbox.enqueue(f"{step} {RUN}", customer, joins=[join])
        tx.joins.enqueue_wait(join, on_complete_topic=f"ship {RUN}", on_complete_payload=customer)


def make_dispatcher(stores: MappedStores[Store]) -> Dispatcher:
    dispatcher = Dispatcher(stores, concurrency=1)
    shipped: set[str] = set()

    @dispatcher.handler(f"ship {RUN}")
    def ship(message: ClaimedMessage) -> None:
        shipped.add(str(message.payload))
        if len(shipped) == len(COUNTRIES):
            print("shipped to", ", ".join(sorted(shipped)))

    for step in ("pack", "bill"):
        dispatcher.handler(f"{step} {RUN}")(lambda message: None)
    return dispatcher


if __name__ == "__main__":
    main()

# Output:
# shipped to ada, bob, eve
# in europe: 2 orders
# in america: 1 orders
