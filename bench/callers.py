"""Many callers in one process: `python callers.py ours|single|theirs URL`.

A process of its own, so that it runs with the packages of either side; it imports nothing of the
bench. It prints `ready`, and then answers each line
`SECONDS append|write|write_to_one threads|tasks COUNT RATE` with calls per second, and the median
and the 99th percentile of how long a call took, in milliseconds. A rate of 0 means as fast as they
can. Every append is a decision on a boundary of its own; every write goes to a stream of its own,
or all go to one.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

#: makes one call, on the boundary or stream of this name
Call = Callable[[str], Any]
DATA = {"amount": 50, "currency": "EUR", "account_id": "a1b2c3d4"}
METADATA = {"correlation_id": "0b8b6f1c"}


class Ours:
    """Calls of one `Store`, or of one `AsyncStore`."""

    def __init__(self, url: str, **options: Any) -> None:
        import penstock
        from penstock import Guard, TypedMessage

        class SeatTaken(TypedMessage, type="seat.taken"):
            course: str
            student: str

        self._connect_async = partial(penstock.connect_async, url, **options)
        self._store = penstock.connect(url, **options)
        low = self._store.read(SeatTaken.to_conditions(course="none"))[1].low

        def append(store: Any, boundary: str) -> Any:
            guard = Guard(tuple(SeatTaken.to_conditions(course=boundary)), low)
            return store.append(SeatTaken(course=boundary, student="0"), guard)

        def write(store: Any, name: str) -> Any:
            return store.write_message(f"account-{name}", "Deposited", DATA, METADATA)

        def write_to_one(store: Any, name: str) -> Any:
            return store.write_message("account-hot", "Deposited", DATA, METADATA)

        self._calls = {"append": append, "write": write, "write_to_one": write_to_one}

    def from_threads(self, what: str, count: int, seconds: float, rate: float) -> list[float]:
        """Call from threads; return how long each call took."""
        return in_threads(partial(self._calls[what], self._store), count, seconds, rate)

    def from_tasks(self, what: str, count: int, seconds: float, rate: float) -> list[float]:
        """Call from tasks of one event loop."""

        async def run() -> list[float]:
            async with await self._connect_async() as store:
                call = partial(self._calls[what], store)
                await asyncio.gather(*[call(f"{time.time_ns()} {n}") for n in range(count)])
                return await in_tasks(call, count, seconds, rate)

        return asyncio.run(run())


class Theirs:
    """Calls of the recorder of eventsourcing, which blocks: it is called from threads."""

    def __init__(self, url: str) -> None:
        from eventsourcing.dcb.api import DCBAppendCondition, DCBEvent, DCBQuery, DCBQueryItem
        from eventsourcing.dcb.postgres_tt import PostgresTTDCBFactory
        from eventsourcing.utils import Environment

        parts = urlsplit(url)
        asked = parse_qs(parts.query)
        recorder = PostgresTTDCBFactory(
            Environment(
                env={
                    "POSTGRES_DBNAME": parts.path.strip("/"),
                    "POSTGRES_HOST": asked["host"][0],
                    "POSTGRES_PORT": asked["port"][0],
                    "POSTGRES_USER": parts.username or "postgres",
                    "POSTGRES_PASSWORD": "none",
                    "POSTGRES_POOL_SIZE": "10",
                    "POSTGRES_MAX_OVERFLOW": "0",
                    "POSTGRES_POOL_TIMEOUT": "60",
                }
            )
        ).dcb_recorder()
        low = recorder.append([DCBEvent("seat.taken", b"{}", ["course:none"])])

        def append(boundary: str) -> Any:
            data = b'{"course": "%s", "student": "0"}' % boundary.encode()
            tag = f"course:{boundary}"
            query = DCBQuery([DCBQueryItem(["seat.taken"], [tag])])
            event = DCBEvent("seat.taken", data, [tag, "student:0"])
            return recorder.append([event], DCBAppendCondition(query, low))

        self._append = append

    def from_threads(self, what: str, count: int, seconds: float, rate: float) -> list[float]:
        """Append from threads; return how long each append took."""
        return in_threads(self._append, count, seconds, rate)

    from_tasks = from_threads


def moments(began: float, number: int, count: int, seconds: float, rate: float) -> Any:
    """Yield when each call of a caller begins: at once, or in turns, so that all make the rate."""
    for made in itertools.count():
        due = began + (made * count + number) / rate if rate else time.perf_counter()
        if max(due, time.perf_counter()) >= began + seconds:
            return
        yield due


def in_threads(call: Call, count: int, seconds: float, rate: float) -> list[float]:
    """Call from threads; return how long each call took."""
    took: list[float] = []
    began = time.perf_counter()

    def work(number: int) -> None:
        own = []
        for due in moments(began, number, count, seconds, rate):
            if (pause := due - time.perf_counter()) > 0:
                time.sleep(pause)
            start = time.perf_counter()
            call(f"{time.time_ns()} {number}")
            own.append(time.perf_counter() - start)
        took.extend(own)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return took


async def in_tasks(
    call: Callable[[str], Awaitable[Any]], count: int, seconds: float, rate: float
) -> list[float]:
    """Call from tasks; return how long each call took."""
    took: list[float] = []
    began = time.perf_counter()

    async def work(number: int) -> None:
        for due in moments(began, number, count, seconds, rate):
            if (pause := due - time.perf_counter()) > 0:
                await asyncio.sleep(pause)
            start = time.perf_counter()
            await call(f"{time.time_ns()} {number}")
            took.append(time.perf_counter() - start)

    await asyncio.gather(*[work(number) for number in range(count)])
    return took


def main(side: str, url: str) -> None:
    """Call as long as lines come in."""
    sides: dict[str, Callable[[], Any]] = {
        "ours": lambda: Ours(url),
        "single": lambda: Ours(url, coalesce=False),
        "theirs": lambda: Theirs(url),
    }
    caller = sides[side]()
    print("ready", flush=True)
    for line in sys.stdin:
        seconds, what, how, count, rate = line.split()
        run = caller.from_threads if how == "threads" else caller.from_tasks
        took = sorted(run(what, int(count), float(seconds), float(rate)))
        middle, slow = took[len(took) // 2], took[len(took) * 99 // 100]
        print(len(took) / float(seconds), 1000 * middle, 1000 * slow, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
