"""Consumers for async code: two in one event loop, one of them exactly once."""

from __future__ import annotations

import asyncio

import penstock
from penstock import AsyncConsumer, AsyncStore, AsyncTransaction, RecordedMessage

RUN = penstock.new_id().hex  # for categories of this run's own
ORDERS, INVOICES = f"order{RUN}", f"invoice{RUN}"


async def main() -> None:
    async with await penstock.connect_async() as store:
        biller, mailer = make_biller(store), make_mailer(store)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(biller.run())
            tasks.create_task(mailer.run())
            for number in (1, 2, 3):
                await store.write_message(f"{ORDERS}-{number}", "Placed", {"number": number})


def make_biller(store: AsyncStore) -> AsyncConsumer:
    """Draw an invoice for each order, in one transaction with the position."""
    consumer = AsyncConsumer(store, ORDERS, "biller", transactional=True, positions="table")

    @consumer.handler("Placed")
    async def draw(message: RecordedMessage, transaction: AsyncTransaction) -> None:
        number = message.data["number"]
        await transaction.write_message(f"{INVOICES}-{number}", "Drawn", {"number": number})
        if number == 3:
            consumer.stop()

    return consumer


def make_mailer(store: AsyncStore) -> AsyncConsumer:
    """Mail each invoice. A plain handler does where nothing has to be awaited."""
    consumer = AsyncConsumer(store, INVOICES, "mailer", polling_interval_ms=20)

    @consumer.handler("Drawn")
    def mail(message: RecordedMessage) -> None:
        print("mail: invoice", message.data["number"])
        if message.data["number"] == 3:
            consumer.stop()

    return consumer


if __name__ == "__main__":
    asyncio.run(main())

# Output:
# mail: invoice 1
# mail: invoice 2
# mail: invoice 3
