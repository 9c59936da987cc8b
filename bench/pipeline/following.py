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
TITLE = "From an input's commit to its output"
NOTE = (
    "{messages} single messages, one after the other, through a map-only stream that follows the "
    "log: from the return of the sale's write to the moment at which a reader of the category "
    "gets its invoice. The reader asks every 2 ms. The ratios are to one second."
)


def compare(place: Place, messages: int) -> Comparison:
    """Measure milliseconds, message by message."""
    place.server.ours(DATABASE, 0)
    tell(f"{TITLE}: {messages} messages")
    with penstock.connect(place.url(DATABASE)) as store, _following(place, store):
        seconds = [_seconds(store, number) for number in range(WARM_UP + messages)][WARM_UP:]
    place.server.drop(DATABASE)
    each = Figure("each", "ms", [one * 1000 for one in seconds])
    worst = Figure(f"the worst of {messages}", "ms", [max(each.values)])
    ratios = [
        Ratio(f"{one.name} / one second", [value / 1000 for value in one.values], at_most=1)
        for one in (each, worst)
    ]
    return Comparison(TITLE, [each, worst], ratios, [NOTE.format(messages=messages)])


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
    head = store.category_head("invoice")
    sale = {"amount": 12.5, "currency": "EUR", "customer": f"c{number}"}
    store.write_message(f"sale-{number}", "Sold", sale)
    began = time.perf_counter()
    while not store.get_category_messages("invoice", head + 1, 1):
        if time.perf_counter() > began + PATIENCE:
            raise RuntimeError(f"no invoice within {PATIENCE:.0f} seconds")
        time.sleep(LOOK_AGAIN)
    return time.perf_counter() - began
