"""A process that runs consumers for tests to kill. It forks one for each line of options on stdin.

A consumer prints its process id, then a line before and after each message. When it has ended, this
process prints its status.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import penstock
from penstock import AsyncConsumer, Consumer, RecordedMessage
from tests.both_ways import Async, Blocking, EventLoopThread


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


class StoppedConsumer(Consumer):
    """A consumer that shows whether it was stopped."""

    is_stopped = False

    def stop(self) -> None:
        super().stop()
        self.is_stopped = True


class AsyncStoppedConsumer(AsyncConsumer):
    """The same for async code."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.stopped = asyncio.Event()

    def stop(self) -> None:
        super().stop()
        self.stopped.set()


def consume(
    url: str,
    category: str,
    done: str,
    *,
    crash_at: int | None = None,
    hang_at: int | None = None,
    run: str = "run",
    is_async: bool = False,
    **options: Any,
) -> None:
    """Copy each message of a category to another, at most until a message with some number."""
    way = Async(EventLoopThread()) if is_async else Blocking()
    new_consumer: Any = way.Consumer if is_async else StoppedConsumer

    def report(message: RecordedMessage, call: Callable[[RecordedMessage], None]) -> None:
        say("before", message.data["number"])
        call(message)
        if message.data["number"] == crash_at:
            os.kill(os.getpid(), signal.SIGKILL)
        say("after", message.data["number"])

    with way.connect(url) as store:
        consumer = new_consumer(store, category, "mailer", middleware=[report], **options)

        @consumer.handler("Placed")  # type: ignore[untyped-decorator]
        def copy(message: RecordedMessage, writer: Any = store) -> None:
            while message.data["number"] == hang_at and not consumer.is_stopped:
                time.sleep(0.01)
            writer.write_message(f"{done}-1", "Done", message.data)

        getattr(consumer, run)()


async def consume_async(
    url: str, category: str, *, consumers: int, hang_at: int, run: str = "run"
) -> None:
    """Run several consumers in one event loop; each hangs at a message until it is stopped."""

    async def one(store: penstock.AsyncStore, number: int) -> None:
        consumer = AsyncStoppedConsumer(store, category, f"mailer-{number}")

        @consumer.handler("Placed")
        async def handle(message: RecordedMessage) -> None:
            if message.data["number"] == hang_at:
                say("hangs", number)
                await consumer.stopped.wait()

        await getattr(consumer, run)()

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
