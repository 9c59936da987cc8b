"""PgQueuer: `enqueue` of lists from a pool, and a queue manager that drains on its own connection.

With asyncpg and uvloop, and set up as its page on performance says: its autovacuum settings, and a
large batch for short jobs.
"""

import json
import logging
import sys
import time

import asyncpg
import uvloop
from pgqueuer import PgQueuer, Queries
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.types import QueueExecutionMode

BATCH = 1000


async def main(url: str, count: str, workers: str = "10") -> None:
    logging.disable(logging.CRITICAL)
    async with asyncpg.create_pool(url, min_size=2, max_size=int(workers)) as pool:
        queries = Queries(AsyncpgPoolDriver(pool))
        if count == "install":
            await queries.install()
            await queries.optimize_autovacuum()
            return
        connection = await asyncpg.connect(url)
        queuer = PgQueuer(AsyncpgDriver(connection))
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
        await connection.close()
    assert handled == int(count)
    print(json.dumps({"enqueue": enqueued - began, "process": ended - enqueued}))


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
