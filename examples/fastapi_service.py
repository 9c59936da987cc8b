"""A web service with FastAPI. Its worker, dispatcher and consumer are tasks on the same event loop.

The application's lifespan starts and stops them. Serve it with any ASGI server:

    PENSTOCK_URL=... uvicorn examples.fastapi_service:app
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.testclient import TestClient

import penstock
from penstock import (
    AsyncConsumer,
    AsyncDispatcher,
    AsyncStore,
    AsyncWorker,
    Claim,
    ClaimedMessage,
    RecordedMessage,
    TypedMessage,
)

RUN = penstock.new_id().hex  # for names of this run's own


class Ordered(TypedMessage, type=f"order.placed.{RUN}"):
    order_id: str
    product: str


class Reserved(TypedMessage, type=f"order.reserved.{RUN}"):
    order_id: str
    product: str


def reserve(claim: Claim) -> list[Reserved]:
    """Reserve a piece for each order of a product. Appended under the partition's guard."""
    return [Reserved(**message.data) for message in claim.messages]


class Service:
    """What the handlers of requests use: the store, and a projection that a consumer keeps."""

    def __init__(self, store: AsyncStore) -> None:
        self.store = store
        self.reserved: Counter[str] = Counter()
        self.worker = AsyncWorker(
            store, f"stock-{RUN}", reserve, partition_by="product", handled_types=[Ordered]
        )
        self.dispatcher = AsyncDispatcher(store, polling_interval_ms=20)
        self.dispatcher.handler(f"mail-{RUN}")(self.send_mail)
        self.projection = AsyncConsumer(
            store, Reserved.message_type, "stock", polling_interval_ms=20
        )
        self.projection.handler(Reserved.message_type)(self.count)

    async def send_mail(self, message: ClaimedMessage) -> None:
        """Send a mail. It runs on the application's loop and uses the application's store."""
        await self.store.write_message(f"sent{RUN}-1", "Sent", {"mail": message.payload})

    def count(self, message: RecordedMessage) -> None:
        """Count what is reserved of each product."""
        self.reserved[message.data["product"]] += 1


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Connect, run the loops for as long as the application lives, and stop them."""
    async with await penstock.connect_async() as store, asyncio.TaskGroup() as tasks:
        app.state.service = service = Service(store)
        loops = (service.worker, service.dispatcher, service.projection)
        for one in loops:
            tasks.create_task(one.run())
        yield
        for one in loops:
            one.stop()


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{order_id}", status_code=202)
async def place_order(order_id: str, product: str) -> dict[str, str]:
    """Append the order, and enqueue its mail, in one transaction."""
    service: Service = app.state.service
    async with service.store.transaction() as tx:
        await tx.append(Ordered(order_id=order_id, product=product))
        await tx.outbox.enqueue(f"mail-{RUN}", {"order": order_id})
    return {"accepted": order_id}


@app.get("/reserved/{product}")
async def reserved(product: str) -> int:
    """Return how many pieces of a product are reserved."""
    service: Service = app.state.service
    return service.reserved[product]


@app.get("/mails")
async def mails() -> int:
    """Return how many mails were sent."""
    service: Service = app.state.service
    last = await service.store.stream_version(f"sent{RUN}-1")
    return 0 if last is None else last + 1


def main() -> None:
    with TestClient(app) as client:
        for number in (1, 2, 3):
            answer = client.post(f"/orders/{number}", params={"product": "lamp"})
            print(answer.status_code, answer.json())
        while client.get("/reserved/lamp").json() < 3 or client.get("/mails").json() < 3:
            pass  # the loops work meanwhile
        print("reserved:", client.get("/reserved/lamp").json())
        print("mails:", client.get("/mails").json())


if __name__ == "__main__":
    main()

# Output:
# 202 {'accepted': '1'}
# 202 {'accepted': '2'}
# 202 {'accepted': '3'}
# reserved: 3
# mails: 3
