"""Procrastinate: `batch_defer_async`, and a worker that deletes what succeeded."""

import asyncio
import json
import logging
import sys
import time

import procrastinate

BATCH = 1000


async def main(url: str, count: str, workers: str = "10") -> None:
    logging.disable(logging.CRITICAL)
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url, max_size=20))
    handled = 0

    async def noop(n: int) -> None:
        nonlocal handled
        handled += 1

    task = app.task(name="noop")(noop)
    async with app.open_async():
        if count == "install":
            await app.schema_manager.apply_schema_async()
            return
        began = time.perf_counter()
        for begin in range(0, int(count), BATCH):
            numbers = range(begin, min(begin + BATCH, int(count)))
            await task.batch_defer_async(*({"n": n} for n in numbers))
        enqueued = time.perf_counter()
        await app.run_worker_async(
            concurrency=int(workers),
            wait=False,
            delete_jobs="successful",
            install_signal_handlers=False,
        )
        ended = time.perf_counter()
    assert handled == int(count)
    print(json.dumps({"enqueue": enqueued - began, "process": ended - enqueued}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
