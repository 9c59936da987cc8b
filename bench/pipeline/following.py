"""How long one message takes through a pipeline that follows the log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import penstock
from bench.measuring import tell
from bench.pipeline.invoicing import invoicing
from bench.results import Comparison, Figure, Ratio
from bench.spark.place import Place
from penstock import Store
from penstock.pipeline import Runner

DATABASE = "following"
WARM_UP = 10
PATIENCE = 60.0  # seconds
LOOK_AGAIN = 0.002  # seconds
#: seconds between two messages, so that the pipeline is at rest; the second is added in parts
REST, SPREAD, PARTS = 0.2, 0.1, 7
TITLE = "From an input's commit to its output"
NOTE = (
    "{messages} single messages, one after the other and at rest, through a map-only stream that "
    "follows the log: from the return of the sale's write to the moment at which a reader of the "
    "category gets its invoice. The reader asks every 2 ms. Before wake-ups a pipeline polled, as "
    "it still does with `wake_up=False`. The writer has a store of its own."
)


def compare(place: Place, messages: int) -> Comparison:
    """Measure milliseconds, message by message, polling and with wake-ups."""
    place.server.ours(DATABASE, 0)
    polling = _figures(place, "polling", messages, wake_up=False)
    waking = _figures(place, "with wake-ups", messages, wake_up=True)
    place.server.drop(DATABASE)
    ratios = [
        Ratio(f"{one.name} / one second", [value / 1000 for value in one.values], at_most=1)
        for one in waking
    ]
    each = [waking[0].median / polling[0].median]
    ratios.append(Ratio("with wake-ups / polling", each, at_most=1))
    return Comparison(TITLE, [*polling, *waking], ratios, [NOTE.format(messages=messages)])


def _figures(place: Place, name: str, messages: int, *, wake_up: bool) -> list[Figure]:
    """Return what each message took, and the worst."""
    tell(f"{TITLE}: {messages} messages, {name}")
    url = place.url(DATABASE)
    with (
        penstock.connect(url) as writer,
        penstock.connect(url, wake_up=wake_up) as store,
        _following(place, store),
    ):
        seconds = [_seconds(writer, number) for number in range(WARM_UP + messages)][WARM_UP:]
    each = Figure(name, "ms", [one * 1000 for one in seconds])
    return [each, Figure(f"{name}, the worst of {messages}", "ms", [max(each.values)])]


@contextmanager
def _following(place: Place, store: Store) -> Iterator[None]:
    """Let a pipeline follow the log meanwhile."""
    runner = Runner(invoicing(), store, place.spark)
    thread = Thread(target=runner.run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        runner.stop()
        thread.join()


def _seconds(store: Store, number: int) -> float:
    """Write a sale and wait for its invoice."""
    time.sleep(REST + SPREAD * (number % PARTS) / PARTS)
    head = store.category_head("invoice")
    sale = {"amount": 12.5, "currency": "EUR", "customer": f"c{number}"}
    store.write_message(f"sale-{number}", "Sold", sale)
    began = time.perf_counter()
    while not store.get_category_messages("invoice", head + 1, 1):
        if time.perf_counter() > began + PATIENCE:
            raise RuntimeError(f"no invoice within {PATIENCE:.0f} seconds")
        time.sleep(LOOK_AGAIN)
    return time.perf_counter() - began
