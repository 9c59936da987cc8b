"""The same operations for async code: write, transact, and follow as messages come."""

from __future__ import annotations

import asyncio

import penstock
from penstock import AsyncStore

CATEGORY = f"sensor{penstock.new_id().hex}"  # a category of this run's own


async def main() -> None:
    async with await penstock.connect_async() as store:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(follow(store, until=6))
            for sensor in range(3):
                tasks.create_task(measure(store, sensor))

        async with store.transaction() as tx:
            await tx.write_message(f"{CATEGORY}-0", "Removed")
            await tx.write_message(f"{CATEGORY}-1", "Removed")
        versions = [await store.stream_version(f"{CATEGORY}-{sensor}") for sensor in range(3)]
        print("versions:", versions)


async def measure(store: AsyncStore, sensor: int) -> None:
    for value in range(2):
        await store.write_message(f"{CATEGORY}-{sensor}", "Measured", {"value": value})


async def follow(store: AsyncStore, until: int) -> None:
    seen = 0
    async for message in store.follow_category(CATEGORY, polling_interval_ms=20):
        seen += 1
        if seen == until:
            print("followed:", seen, message.type)
            return


if __name__ == "__main__":
    asyncio.run(main())

# Output:
# followed: 6 Measured
# versions: [2, 2, 1]
