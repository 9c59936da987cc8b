"""Promise 4, Exactly once, for the async consumer: its writes and its position are one commit."""

from __future__ import annotations

import pytest

from penstock import AsyncConsumer, AsyncStore, AsyncTransaction, Message, RecordedMessage
from penstock.errors import PositionConflict


@pytest.mark.parametrize("positions", ["stream", "table", "hybrid"])
async def test_async_twins_do_a_message_once(async_store: AsyncStore, positions: str) -> None:
    async def twin() -> AsyncConsumer:
        consumer = AsyncConsumer(
            async_store, "order", "biller", positions=positions, transactional=True
        )

        @consumer.handler("Placed")
        async def bill(message: RecordedMessage, transaction: AsyncTransaction) -> None:
            await transaction.write_messages("invoice-1", [Message("Billed")])

        await consumer.run_once()
        return consumer

    one, other = await twin(), await twin()
    await async_store.write_message("order-1", "Placed")
    await one.run_once()

    with pytest.raises(PositionConflict):
        await other.run_once()

    assert len(await async_store.get_stream_messages("invoice-1")) == 1
