"""The memory of Spark's Python workers: whether it grows with what is read or written."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import psutil

from bench.measuring import Contender, measure
from bench.results import Comparison, ratio
from bench.spark.place import Place, drain
from bench.spark.writing import DATABASE, WRITERS, sales

PAUSE = 0.02  # seconds between looks
ROUNDS = 3
#: else a worker would still have what an earlier task made it take
FRESH_WORKERS = {"spark.python.worker.reuse": "false"}
NOTE = (
    "The largest resident set that any Python worker had, looked up every 20 ms; it contains the "
    "interpreter and its libraries. Every task has a fresh worker (spark.python.worker.reuse = "
    "false), so that none inherits the memory of an earlier one. A worker holds a few batches and "
    "not its part of the log: ten times as many messages need no more."
)


def reading(place: Place, database: str, messages: int) -> Comparison:
    """Measure megabytes while a tenth of the messages are read, and all of them."""
    return _compared("reading", messages, partial(_read, place, database))


def writing(place: Place, messages: int) -> Comparison:
    """Measure megabytes while a tenth of the messages are written, and all of them."""
    place.server.ours(DATABASE, 0)
    compared = _compared("writing", messages, partial(_write, place))
    place.server.drop(DATABASE)
    return compared


def peak_megabytes(work: Callable[[], object]) -> float:
    """Do something, and return the most memory that one of Spark's Python workers had meanwhile."""
    seen, over = [0], threading.Event()

    def look() -> None:
        while not over.wait(PAUSE):
            seen.append(max(_resident(), default=0))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        work()
    finally:
        over.set()
        thread.join()
    return max([*seen, *_resident()]) / 1_000_000


def _compared(what: str, messages: int, work: Callable[[int], object]) -> Comparison:
    title = f"A Python worker of Spark, {what}"
    contenders = [
        Contender(f"at {size:,} messages", partial(peak_megabytes, partial(work, size)))
        for size in (messages // 10, messages)
    ]
    tenth, whole = measure(title, "MB", contenders, ROUNDS).values()
    return Comparison(title, [tenth, whole], [ratio(whole, tenth, at_most=1.2)], [NOTE])


def _read(place: Place, database: str, messages: int) -> None:
    log = place.read(database).options(category="sale", until=messages, partitions=WRITERS)
    drain(log.load())


def _write(place: Place, messages: int) -> None:
    place.write(sales(place.spark, messages).drop("position"), DATABASE).save()


def _resident() -> Iterator[int]:
    """Look at all workers for tasks below this process."""
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error, OSError):
            if "pyspark.worker" in process.cmdline():
                yield process.memory_info().rss
