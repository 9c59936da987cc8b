"""Claim and acknowledge with few partitions, with many, with a hot key, and with nothing to do."""

from __future__ import annotations

import time
from functools import partial

import psycopg

import penstock
from bench.measuring import Contender, Effort, measure, tell
from bench.results import Comparison, ratio
from bench.server import Server
from penstock import Store, TypedMessage

PER_SLICE = 100
#: how many partitions, and how many messages at least
SHAPES = ((100, 0), (10_000, 0), (100_000, 0), (1, 500_000))
SHAPES_WHEN_QUICK = ((100, 0), (10_000, 0), (1, 10_000))
NOTES = [
    "One worker claims one message of a partition, acknowledges it and goes on to the next; all "
    "messages are routed beforehand. One partition means that every message has the same key. At "
    "rest means that a claim finds nothing to do.",
]


class ReadingTaken(TypedMessage, type="reading.taken"):
    """A message of a partition for each device."""

    device: str


def compare(server: Server, effort: Effort) -> list[Comparison]:
    """Measure milliseconds for each shape of the log, and at rest."""
    shapes = SHAPES_WHEN_QUICK if effort.quick else SHAPES
    stores = [
        _filled(server, partitions, max(partitions, messages, (effort.rounds + 2) * PER_SLICE))
        for partitions, messages in shapes
    ]
    contenders = [
        Contender(_name(*shape), partial(_claim_and_ack, store))
        for shape, store in zip(shapes, stores, strict=True)
    ]
    idle = penstock.connect(server.ours("claims_idle", 0))
    idle.register_consumer_group("bench")
    idle.declare(ReadingTaken)
    contenders.append(Contender("at rest", partial(_idle, idle)))
    figures = measure("claim and ack", "ms", contenders, effort.rounds)
    for store in (*stores, idle):
        store.close()
    server.drop(*(f"claims_{partitions}" for partitions, _ in shapes), "claims_idle")
    smallest, *larger, rest = figures.values()
    ratios = [ratio(one, smallest, at_most=1.5) for one in larger]
    ratios.append(ratio(rest, smallest, at_most=0.1))
    return [Comparison("Claim and acknowledge", list(figures.values()), ratios, NOTES)]


def _name(partitions: int, messages: int) -> str:
    if messages:
        return f"{partitions} partition of {messages:,} messages"
    return f"{partitions:,} partitions"


def _filled(server: Server, partitions: int, messages: int) -> Store:
    """Return a store with so many partitions and messages, all of them routed."""
    tell(f"claims: making {messages:,} messages in {partitions:,} partitions")
    url = server.ours(f"claims_{partitions}", 0)
    store = penstock.connect(url)
    store.register_consumer_group("bench")
    for first in range(0, messages, 10_000):
        numbers = range(first, min(first + 10_000, messages))
        store.append([ReadingTaken(device=str(number % partitions)) for number in numbers])
    claim = _claim(store, batch_size=1)
    assert claim is not None
    store.release(claim)
    with psycopg.connect(url, autocommit=True) as connection:
        route = "select penstock.route(g) from penstock.consumer_groups g"
        while connection.execute(route).fetchone() == (True,):
            pass
        connection.execute("vacuum analyze")
    return store


def _claim(store: Store, batch_size: int = 1) -> penstock.Claim | None:
    return store.claim_next(
        "bench", partition_by="device", handled_types=[ReadingTaken], batch_size=batch_size
    )


def _claim_and_ack(store: Store) -> float:
    began = time.perf_counter()
    for _ in range(PER_SLICE):
        claim = _claim(store)
        assert claim is not None
        store.ack(claim)
    return (time.perf_counter() - began) / PER_SLICE * 1000


def _idle(store: Store) -> float:
    began = time.perf_counter()
    for _ in range(PER_SLICE):
        assert _claim(store) is None
    return (time.perf_counter() - began) / PER_SLICE * 1000
