"""Reservation of scarce products, by parallel workers with one worker per product at a time.

A worker reads the new requests for a product and its earlier reservations, and appends its
decisions with the guard and the acknowledgement in one transaction. So no item is reserved twice,
with any number of workers.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from penstock import Claim, Store, TypedMessage, Worker

GROUP = "stock"
WORKERS = 4


class Requested(TypedMessage, type="reservation.requested", unindexed=["order_id", "quantity"]):
    """A customer requests items of a product."""

    product_id: str
    order_id: str
    quantity: int


class Reserved(TypedMessage, type="stock.reserved", unindexed=["order_id", "quantity"]):
    """The items are reserved."""

    product_id: str
    order_id: str
    quantity: int


class Refused(TypedMessage, type="stock.refused", unindexed=["order_id", "quantity", "left"]):
    """Too few items are left."""

    product_id: str
    order_id: str
    quantity: int
    left: int


def reserve(store: Store, claim: Claim) -> list[Reserved | Refused]:
    """Decide the requests for one product, in order."""
    product_id = claim.partition_value["product_id"]
    offered = store.get_last_stream_message(f"product-{product_id}")
    before, _ = store.read(Reserved.to_conditions(product_id=product_id))
    left = 0 if offered is None else int(offered.data["stock"])
    left -= sum(int(one.data["quantity"]) for one in before)
    decided: list[Reserved | Refused] = []
    for message in claim.messages:
        order_id, quantity = message.data["order_id"], message.data["quantity"]
        if quantity <= left:
            left -= quantity
            decided.append(Reserved(product_id=product_id, order_id=order_id, quantity=quantity))
        else:
            decided.append(
                Refused(product_id=product_id, order_id=order_id, quantity=quantity, left=left)
            )
    return decided


@contextmanager
def workers(store: Store) -> Iterator[None]:
    """Run workers during the block, and until no request is left."""
    store.declare(Requested, Reserved, Refused)
    made = [
        Worker(
            store,
            GROUP,
            lambda claim: reserve(store, claim),
            partition_by="product_id",
            handled_types=[Requested],
            worker_id=f"worker {number}",
            batch_size=200,
        )
        for number in range(WORKERS)
    ]
    threads = [threading.Thread(target=one.run, daemon=True) for one in made]
    for thread in threads:
        thread.start()
    try:
        yield
        while made[0].run_once():
            pass
    finally:
        for one in made:
            one.stop()
        for thread in threads:
            thread.join()
