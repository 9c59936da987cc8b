"""PgQueuer: `enqueue` of lists, and a queue manager that drains, with asyncpg and uvloop."""

import json
import logging
import sys
import time

import asyncpg
import uvloop
from pgqueuer import PgQueuer, Queries
from pgqueuer.db import AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.types import QueueExecutionMode

BATCH = 1000


async def main(url: str, count: str, workers: str = "10") -> None:
    logging.disable(logging.CRITICAL)
    async with asyncpg.create_pool(url, min_size=2, max_size=int(workers)) as pool:
        driver = AsyncpgPoolDriver(pool)
        queries = Queries(driver)
        if count == "install":
            await queries.install()
            return
        queuer = PgQueuer(driver)
        handled = 0

        async def noop(job: Job) -> None:
            nonlocal handled
            handled += 1

        queuer.entrypoint("noop")(noop)
        began = time.perf_counter()
        for begin in range(0, int(count), BATCH):
            size = min(BATCH, int(count) - begin)
            payloads = [json.dumps({"n": begin + n}).encode() for n in range(size)]
            await queries.enqueue(["noop"] * size, payloads, [0] * size)
        enqueued = time.perf_counter()
        await queuer.qm.run(batch_size=100, mode=QueueExecutionMode.drain)
        ended = time.perf_counter()
    assert handled == int(count)
    print(json.dumps({"enqueue": enqueued - began, "process": ended - enqueued}))


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
