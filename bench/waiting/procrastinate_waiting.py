"""Procrastinate: a worker that listens, and deletes what succeeded."""

import asyncio
import logging
import sys
import time

import procrastinate


async def main(url: str, what: str, kind: str = "", count: str = "0", pause: str = "0") -> None:
    logging.disable(logging.CRITICAL)
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url, max_size=4))

    async def handle(n: int) -> None:
        print(time.monotonic(), flush=True)

    task = app.task(name="handle")(handle)
    async with app.open_async():
        if what == "install":
            await app.schema_manager.apply_schema_async()
        elif what == "wait":
            asyncio.get_running_loop().call_later(2.0, lambda: print("ready", flush=True))
            await app.run_worker_async(concurrency=1, delete_jobs="successful")
        else:
            for number in range(int(count)):
                await asyncio.sleep(float(pause))
                await task.defer_async(n=number)
                print(time.monotonic(), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
