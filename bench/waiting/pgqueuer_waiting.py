"""PgQueuer: a queue manager that listens on its own connection."""

import asyncio
import logging
import sys
import time

import asyncpg
import uvloop
from pgqueuer import PgQueuer, Queries
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job


async def main(url: str, what: str, kind: str = "", count: str = "0", pause: str = "0") -> None:
    logging.disable(logging.CRITICAL)
    connection = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))
    if what == "install":
        await queries.install()
    elif what == "wait":
        queuer = PgQueuer(AsyncpgDriver(connection))

        async def handle(job: Job) -> None:
            print(time.monotonic(), flush=True)

        queuer.entrypoint("handle")(handle)
        asyncio.get_running_loop().call_later(2.0, lambda: print("ready", flush=True))
        await queuer.run()
    else:
        for _ in range(int(count)):
            await asyncio.sleep(float(pause))
            await queries.enqueue("handle", b"{}")
            print(time.monotonic(), flush=True)


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
