"""A program with a worker that is sent a signal by its first handler."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import penstock
from penstock import AsyncWorker, Claim, Worker
from tests.groups.school import DeviceRemoved, DeviceSeen


def main(url: str, form: str, call: str, number: str) -> None:
    def handle(claim: Claim) -> DeviceRemoved:
        if claim.partition_value["device_id"] == "a":
            os.kill(os.getpid(), int(number))
        return DeviceRemoved(**claim.partition_value)

    terms: dict[str, Any] = {
        "partition_by": "device_id",
        "handled_types": [DeviceSeen],
        "batch_size": 1,
    }

    async def run_async() -> None:
        async with await penstock.connect_async(url) as store:
            await getattr(AsyncWorker(store, "group", handle, **terms), call)()

    if form == "async":
        asyncio.run(run_async())
    else:
        with penstock.connect(url) as store:
            getattr(Worker(store, "group", handle, **terms), call)()
    print("ended")


if __name__ == "__main__":
    main(*sys.argv[1:])
