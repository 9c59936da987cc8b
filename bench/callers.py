"""Many callers in one process: `python callers.py ours|single|theirs|ceiling|lone URL`.

A process of its own, so that it runs with the packages of either side; it imports nothing of the
bench. It prints `ready`, and then answers each line
`SECONDS append|write|write_to_one threads|tasks COUNT RATE` with calls per second, and the median
and the 99th percentile of how long a call took, in milliseconds. A rate of 0 means as fast as they
can. Every append is a decision on a boundary of its own; every write goes to a stream of its own,
or all go to one.

`ceiling` has no callers that wait: one thread sends batches of COUNT calls. `lone` is one caller
that makes each call twice, coalesced and not, in random order; it answers with the median of
either, in milliseconds.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import statistics
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


def boundaries(store: Any) -> tuple[Any, int]:
    """Return the class of the messages that are appended, and the end of the log."""
    from penstock import TypedMessage

    class SeatTaken(TypedMessage, type="seat.taken"):
        course: str
        student: str

    return SeatTaken, store.read(SeatTaken.to_conditions(course="none"))[1].low


def decision(seat_taken: Any, low: int, boundary: str) -> tuple[list[Any], Any]:
    """Return a message, and the guard of a decision on its boundary."""
    from penstock import Guard

    guard = Guard(tuple(seat_taken.to_conditions(course=boundary)), low)
    return [seat_taken(course=boundary, student="0")], guard


class Ours:
    """Calls of one `Store`, or of one `AsyncStore`."""

    def __init__(self, url: str, **options: Any) -> None:
        import penstock

        self._connect_async = partial(penstock.connect_async, url, **options)
        self._store = penstock.connect(url, **options)
        seat_taken, low = boundaries(self._store)

        def append(store: Any, boundary: str) -> Any:
            return store.append(*decision(seat_taken, low, boundary))

        def write(store: Any, name: str) -> Any:
            return store.write_message(f"account-{name}", "Deposited", DATA, METADATA)

        def write_to_one(store: Any, name: str) -> Any:
            return store.write_message("account-hot", "Deposited", DATA, METADATA)

        self._calls = {"append": append, "write": write, "write_to_one": write_to_one}

    def call(self, what: str, name: str) -> None:
        """Make one call."""
        self._calls[what](self._store, name)

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


class Ceiling:
    """Batches of as many calls as there could be callers, sent by one thread that wakes nobody."""

    def __init__(self, url: str) -> None:
        import penstock
        from penstock.database.batch import write_batch
        from penstock.log import append, write

        store = self._store = penstock.connect(url)
        seat_taken, low = boundaries(store)

        def append_one(name: str) -> Any:
            return append.append(store.context, *decision(seat_taken, low, name))

        def write_one(name: str) -> Any:
            stream_name = f"account-{name}"
            return write.write_message(store.context, stream_name, "Deposited", DATA, METADATA)

        self._operations = {"append": append_one, "write": write_one}
        self._write_batch = write_batch

    def from_threads(self, what: str, count: int, seconds: float, rate: float) -> list[float]:
        """Send batches; return for each call how long its batch took."""
        took: list[float] = []
        end = time.perf_counter() + seconds
        while (start := time.perf_counter()) < end:
            calls = [self._operations[what](f"{time.time_ns()} {n}") for n in range(count)]
            self._store.run(self._write_batch(calls))
            took += [time.perf_counter() - start] * count
        return took

    from_tasks = from_threads


class Lone:
    """One caller with two stores."""

    def __init__(self, url: str) -> None:
        self._sides = (Ours(url), Ours(url, coalesce=False))

    def medians(self, what: str, seconds: float) -> list[float]:
        """Return the median of how long a call takes, with coalescing and without."""
        took: tuple[list[float], list[float]] = ([], [])
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for number in random.sample((0, 1), 2):
                name = f"{time.time_ns()} {number}"
                start = time.perf_counter()
                self._sides[number].call(what, name)
                took[number].append(time.perf_counter() - start)
        return [statistics.median(one) for one in took]


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
        "ceiling": lambda: Ceiling(url),
        "lone": lambda: Lone(url),
    }
    caller = sides[side]()
    print("ready", flush=True)
    for line in sys.stdin:
        seconds, what, how, count, rate = line.split()
        if side == "lone":
            print(*[1000 * one for one in caller.medians(what, float(seconds))], flush=True)
            continue
        run = caller.from_threads if how == "threads" else caller.from_tasks
        took = sorted(run(what, int(count), float(seconds), float(rate)))
        middle, slow = took[len(took) // 2], took[len(took) * 99 // 100]
        print(len(took) / float(seconds), 1000 * middle, 1000 * slow, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
