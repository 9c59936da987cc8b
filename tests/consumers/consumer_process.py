"""A process that runs consumers to be killed: it forks one for each line of options it is given.

A consumer says its process id, then a line before and after each message; when it has ended, this
process says how.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import penstock
from penstock import AsyncConsumer, Consumer, RecordedMessage


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def consume(
    url: str,
    category: str,
    done: str,
    *,
    crash_at: int | None = None,
    hang_at: int | None = None,
    finish: bool = False,
    **options: Any,
) -> None:
    """Copy each message of a category to another, at most until a message with some number."""

    def tell(message: RecordedMessage, call: Callable[[RecordedMessage], None]) -> None:
        say("before", message.data["number"])
        call(message)
        if message.data["number"] == crash_at:
            os.kill(os.getpid(), signal.SIGKILL)
        say("after", message.data["number"])

    with penstock.connect(url) as store:
        consumer = Consumer(store, category, "mailer", middleware=[tell], **options)

        @consumer.handler("Placed")
        def copy(message: RecordedMessage, writer: Any = store) -> None:
            while message.data["number"] == hang_at and not consumer._stopping.wait(0.01):
                pass
            writer.write_message(f"{done}-1", "Done", message.data)

        if not finish:
            consumer.run()
        while finish and consumer.run_once():
            pass


async def consume_async(url: str, category: str, *, consumers: int, hang_at: int) -> None:
    """Run several consumers in one event loop; each hangs at a message until it is stopped."""

    async def one(store: penstock.AsyncStore, number: int) -> None:
        consumer = AsyncConsumer(store, category, f"mailer-{number}")

        @consumer.handler("Placed")
        async def handle(message: RecordedMessage) -> None:
            if message.data["number"] == hang_at:
                say("hangs", number)
                await consumer._stopping.wait()

        await consumer.run()

    async with await penstock.connect_async(url) as store:
        await asyncio.gather(*(one(store, number) for number in range(consumers)))


def main() -> None:
    url = sys.argv[1]
    for line in sys.stdin:
        options = json.loads(line)
        child = os.fork()
        if not child:
            say(os.getpid())
            if "consumers" in options:
                asyncio.run(consume_async(url, **options))
            else:
                consume(url, **options)
            os._exit(0)
        say("ended", os.waitpid(child, 0)[1])


if __name__ == "__main__":
    main()
