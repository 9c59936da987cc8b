"""A client that appends under guards: `python appenders.py ours|theirs URL NUMBER`.

A process of its own, so that it runs with the packages of either side; it imports nothing of the
bench. It prints `ready`, and then answers each line `SECONDS BATCH` with messages per second. Every
append is a decision on a boundary of its own, which nobody else touches.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

#: appends so many messages on the boundary of this name
Append = Callable[[str, int], object]


def ours(url: str) -> Append:
    """Append through `Store`."""
    import penstock
    from penstock import Guard, TypedMessage

    class SeatTaken(TypedMessage, type="seat.taken"):
        course: str
        student: str

    store = penstock.connect(url, pool_max_size=1)
    low = store.read(SeatTaken.to_conditions(course="none"))[1].low

    def append(boundary: str, batch: int) -> object:
        guard = Guard(tuple(SeatTaken.to_conditions(course=boundary)), low)
        taken = [SeatTaken(course=boundary, student=str(number)) for number in range(batch)]
        return store.append(taken, guard)

    return append


def theirs(url: str) -> Append:
    """Append through the recorder of eventsourcing, with the same conditions and as many tags."""
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
                "POSTGRES_POOL_SIZE": "1",
                "POSTGRES_MAX_OVERFLOW": "0",
            }
        )
    ).dcb_recorder()
    low = recorder.append([DCBEvent("seat.taken", b"{}", ["course:none"])])

    def append(boundary: str, batch: int) -> object:
        data = b'{"course": "%s", "student": "0"}' % boundary.encode()
        tag = f"course:{boundary}"
        events = [
            DCBEvent("seat.taken", data, [tag, f"student:{number}"]) for number in range(batch)
        ]
        query = DCBQuery([DCBQueryItem(["seat.taken"], [tag])])
        return recorder.append(events, DCBAppendCondition(query, low))

    return append


def main(side: str, url: str, number: str) -> None:
    """Append as long as lines come in."""
    append = {"ours": ours, "theirs": theirs}[side](url)
    fresh = itertools.count()
    started = time.time_ns()
    print("ready", flush=True)
    for line in sys.stdin:
        seconds, batch = line.split()
        began = time.perf_counter()
        appended = 0
        while time.perf_counter() < began + float(seconds):
            append(f"{started} {number} {next(fresh)}", int(batch))
            appended += int(batch)
        print(appended / (time.perf_counter() - began), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
