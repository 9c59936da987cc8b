"""A consumer with a trivial handler, beside message-db-py reading and looping; and one at rest.

Ours does all that a consumer does: it finds the handler by type, wraps it, and stores its position.
The loop around message-db-py finds its handler too, and stores nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Event, Thread
from typing import Any
from uuid import uuid4

from message_db.client import MessageDB

import penstock
from bench.measuring import Contender, Effort, measure
from bench.results import Comparison, ratio
from bench.server import Server
from penstock import Call, Consumer, Interceptor, RecordedMessage, Store

PAGE = 1000  # message-db-py's own default
WATCHED = 3.0  # seconds, of a consumer at rest
PATIENCE = 120.0  # seconds until it is at rest
NOTES = [
    "Both read a category of ten messages to a stream from its start, 1,000 at a time, and call a "
    "function that counts. Ours also stores its position after each 1,000, in a table or in a "
    "stream; message-db-py, on a genuine Message DB, stores nothing. A position in a stream waits "
    "for the disk, one in a table need not.",
]
IDLE_NOTES = [
    "Queries that a consumer sends while nothing is written, counted by an interceptor: without "
    "wake-ups, with the back-off that is the default, and with none.",
]


def compare(server: Server, effort: Effort) -> Iterator[Comparison]:
    """Measure messages per second, and queries per second at rest."""
    messages = 10_000 if effort.quick else 50_000
    ours, genuine = server.ours("consuming", messages), server.genuine("looping", messages)
    client = MessageDB.from_url(genuine.replace("postgres@", "message_store@"), max_connections=2)
    with penstock.connect(ours) as store:
        figures = measure(
            "consumer",
            "messages/s",
            [
                Contender("ours, position in a table", partial(_ours, store, messages, "table")),
                Contender("ours, position in a stream", partial(_ours, store, messages, "stream")),
                Contender("message-db-py, no position", partial(_theirs, client, messages)),
            ],
            effort.rounds if effort.quick else effort.rounds * 2,
        )
    client.connection_pool._connection_pool.closeall()
    table, stream, theirs = figures.values()
    ratios = [ratio(table, theirs, at_least=2), ratio(stream, theirs, at_least=2)]
    title, sizes = "A consumer with a trivial handler", f"{messages:,} messages"
    yield Comparison(title, list(figures.values()), ratios, NOTES, sizes)
    if not effort.quick:
        yield _idle(ours)
    server.drop("consuming", "looping")


def _ours(store: Store, messages: int, positions: str) -> float:
    consumer = Consumer(
        store,
        "account",
        f"bench-{uuid4()}",
        positions=positions,
        batch_size=PAGE,
        position_update_interval=PAGE,
    )
    count = 0

    @consumer.handler("Deposited")
    def handle(message: RecordedMessage) -> None:
        nonlocal count
        count += 1
        if count == messages:
            consumer.stop()

    began = time.perf_counter()
    consumer.run()
    return messages / (time.perf_counter() - began)


def _theirs(client: Any, messages: int) -> float:
    count = 0

    def handle(message: dict[str, Any]) -> None:
        nonlocal count
        count += 1

    handlers: dict[str, Callable[[dict[str, Any]], None]] = {"Deposited": handle}
    position = 0
    began = time.perf_counter()
    while page := client.read("account", position=position, no_of_messages=PAGE):
        for message in page:
            handlers[message["type"]](message)
        position = page[-1]["global_position"] + 1
    assert count == messages
    return messages / (time.perf_counter() - began)


class _Queries(Interceptor):
    def __init__(self) -> None:
        self.count = 0
        self.at_rest = Event()

    @contextmanager
    def around(self, call: Call) -> Iterator[None]:
        self.count += 1
        if self.count > 10:  # it has waited longer and longer
            self.at_rest.set()
        yield


def _idle(url: str) -> Comparison:
    figures = measure(
        "idle consumer",
        "queries/s",
        [
            Contender("with back-off", partial(_queries_per_second, url, 1000)),
            Contender("without", partial(_queries_per_second, url, 100)),
        ],
        rounds=3,
        warm_up=False,
    )
    ratios = [ratio(*figures.values(), at_most=0.2)]
    return Comparison(
        "A consumer at rest, without wake-ups", list(figures.values()), ratios, IDLE_NOTES
    )


def _queries_per_second(url: str, longest_interval_ms: int) -> float:
    queries = _Queries()
    with penstock.connect(url, interceptors=[queries], wake_up=False) as store:
        consumer = Consumer(
            store,
            "account",
            f"bench-{uuid4()}",
            start="end",
            positions="table",
            longest_polling_interval_ms=longest_interval_ms,
        )
        consumer.handler("Deposited")(lambda message: None)
        thread = Thread(target=consumer.run, daemon=True)
        thread.start()
        if not queries.at_rest.wait(PATIENCE):
            raise RuntimeError(f"the consumer was not at rest within {PATIENCE:.0f} seconds")
        before, began = queries.count, time.perf_counter()
        time.sleep(WATCHED)
        rate = (queries.count - before) / (time.perf_counter() - began)
        consumer.stop()
        thread.join()
    return rate
