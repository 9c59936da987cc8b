"""Exactly once: what a handler writes and the consumer's position are one transaction."""

from __future__ import annotations

import penstock
from penstock import Consumer, RecordedMessage, Store, Transaction
from penstock.errors import HandlerFailed

RUN = penstock.new_id().hex  # for categories of this run's own
ORDERS, INVOICES = f"order{RUN}", f"invoice{RUN}"


class PowerFailure(Exception):
    """Strikes after the invoice was written, and before the position was stored."""


def main() -> None:
    with penstock.connect() as store:
        for number in (1, 2, 3):
            store.write_message(f"{ORDERS}-{number}", "Placed", {"number": number})

        try:
            biller(store, fails_at=2).run_once()
        except HandlerFailed as error:
            print(f"stopped: {error.reason}")
        print(f"invoices: {invoices(store)}")

        biller(store).run_once()
        print(f"invoices: {invoices(store)}")


def biller(store: Store, fails_at: int = 0) -> Consumer:
    """Return a consumer that draws an invoice for each order."""
    consumer = Consumer(store, ORDERS, "biller", transactional=True, positions="table")

    @consumer.handler("Placed")
    def draw(message: RecordedMessage, transaction: Transaction) -> None:
        number = message.data["number"]
        transaction.write_message(f"{INVOICES}-{number}", "Drawn", {"order": number})
        if number == fails_at:
            raise PowerFailure(f"at order {number}")

    return consumer


def invoices(store: Store) -> list[int]:
    return [message.data["order"] for message in store.read_category(INVOICES)]


if __name__ == "__main__":
    main()

# Output:
# stopped: PowerFailure: at order 2
# invoices: [1]
# invoices: [1, 2, 3]
