"""Reading a category, 1,000 messages at a time, all the way to the objects a program works with.

Ours is `Store.get_category_messages`: checked arguments, the watermark, and `RecordedMessage`s with
UUIDs, UTC times and decoded data. Genuine Message DB's function is called with plain psycopg: for
the bare rows, whose data is still text, and with data and metadata decoded, which is the least that
a program needs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec
import psycopg

import penstock
from bench.measuring import Contender, Effort, measure
from bench.results import Comparison, ratio
from bench.server import Server, fill
from penstock import Store

PAGE = 1000
NOTES = [
    "The log holds two categories. One is read from its start, page by page; nobody writes "
    "meanwhile.",
    "Genuine rows are tuples of text and numbers. Their data and metadata are decoded by "
    "`json.loads`, as message-db-py does, or by msgspec, as ours does. Ours are "
    "`RecordedMessage`s, decoded, with UUIDs and UTC times.",
]


def compare(server: Server, effort: Effort) -> Iterator[Comparison]:
    """Measure ours, and the genuine one without decoding and with two decoders."""
    messages = 10_000 if effort.quick else 50_000
    ours, genuine = server.ours("reading", messages), server.genuine("reading_genuine", messages)
    for url in (ours, genuine):
        fill(url, "message_store.messages", messages, "order")
    with penstock.connect(ours) as store, psycopg.connect(genuine, autocommit=True) as connection:
        figures = measure(
            "category read",
            "messages/s",
            [
                Contender("ours, to RecordedMessage", partial(_ours, store)),
                Contender("genuine, rows only", partial(_genuine, connection, _as_it_is)),
                Contender("genuine, json.loads", partial(_genuine, connection, _with_json)),
                Contender("genuine, msgspec", partial(_genuine, connection, _with_msgspec)),
            ],
            effort.rounds * 3,
        )
    server.drop("reading", "reading_genuine")
    mine, rows, with_json, with_msgspec = figures.values()
    ratios = [
        ratio(mine, with_json, at_least=1),
        ratio(mine, rows, at_least=1),
        ratio(mine, with_msgspec),
    ]
    title, sizes = "Category read, 1,000 at a time", f"{messages:,} messages"
    yield Comparison(title, list(figures.values()), ratios, NOTES, sizes)


def _ours(store: Store) -> float:
    position, read = 1, 0
    began = time.perf_counter()
    while page := store.get_category_messages("account", position, PAGE):
        read += len(page)
        position = page[-1].global_position + 1
    return read / (time.perf_counter() - began)


Row = tuple[Any, ...]


def _genuine(
    connection: psycopg.Connection[Row], decode: Callable[[list[Row]], list[Row]]
) -> float:
    position, read = 1, 0
    began = time.perf_counter()
    while page := _page(connection, position):
        read += len(decode(page))
        position = page[-1][4] + 1
    return read / (time.perf_counter() - began)


def _page(connection: psycopg.Connection[Row], position: int) -> list[Row]:
    return connection.execute(
        "select id, stream_name, type, position, global_position, data, metadata, time"
        " from message_store.get_category_messages(%s, %s, %s)",
        ("account", position, PAGE),
    ).fetchall()


def _as_it_is(rows: list[Row]) -> list[Row]:
    return rows


def _with_json(rows: list[Row]) -> list[Row]:
    return _decoded(rows, json.loads)


def _with_msgspec(rows: list[Row]) -> list[Row]:
    return _decoded(rows, msgspec.json.decode)


def _decoded(rows: list[Row], loads: Callable[[str], Any]) -> list[Row]:
    return [
        (id, stream_name, type, position, global_position, loads(data), loads(metadata), written)
        for id, stream_name, type, position, global_position, data, metadata, written in rows
    ]
