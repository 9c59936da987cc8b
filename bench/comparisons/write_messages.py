"""Batches against single writes, both through `Store`, from one writer."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from functools import partial

import penstock
from bench.measuring import Contender, Effort, measure
from bench.results import Comparison, ratio
from bench.server import DATA, METADATA, Server
from penstock import Message, Store

NOTES = ["One writer in Python; a batch is one call, one round trip and one commit."]

_streams = itertools.count(1)


def compare(server: Server, effort: Effort) -> Iterator[Comparison]:
    """Measure single writes, batches of 100 and batches of 1,000."""
    with penstock.connect(server.ours("batches")) as store:
        figures = measure(
            "write_messages",
            "messages/s",
            [
                Contender("single write_message", partial(_singles, store, effort.seconds / 2)),
                Contender("batches of 100", partial(_batches, store, effort.seconds / 2, 100)),
                Contender("batches of 1,000", partial(_batches, store, effort.seconds / 2, 1000)),
            ],
            effort.rounds,
        )
    server.drop("batches")
    single, hundred, thousand = figures.values()
    ratios = [ratio(hundred, single, at_least=10), ratio(thousand, single, at_least=10)]
    yield Comparison("write_messages through Store", list(figures.values()), ratios, NOTES)


def _singles(store: Store, seconds: float) -> float:
    data, metadata = json.loads(DATA), json.loads(METADATA)
    began = time.perf_counter()
    written = 0
    while time.perf_counter() < began + seconds:
        stream_name = f"account-single-{next(_streams)}"
        store.write_message(stream_name, "Deposited", data, metadata)
        written += 1
    return written / (time.perf_counter() - began)


def _batches(store: Store, seconds: float, size: int) -> float:
    data, metadata = json.loads(DATA), json.loads(METADATA)
    began = time.perf_counter()
    written = 0
    while time.perf_counter() < began + seconds:
        batch = [Message("Deposited", data, metadata) for _ in range(size)]
        written += len(store.write_messages(f"account-batch-{next(_streams)}", batch))
    return written / (time.perf_counter() - began)
