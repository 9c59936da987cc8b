"""Claim and acknowledge with few partitions and with many, and a claim that finds nothing."""

from __future__ import annotations

import time
from functools import partial

import psycopg

import penstock
from bench.measuring import Contender, Effort, measure
from bench.results import Comparison, ratio
from bench.server import Server
from penstock import Store, TypedMessage

PARTITIONS = (100, 10_000, 100_000)
PER_SLICE = 100
NOTES = [
    "One worker claims a partition with one message, acknowledges it and goes on to the next; all "
    "messages are routed beforehand. At rest means that a claim finds nothing to do.",
]


class ReadingTaken(TypedMessage, type="reading.taken"):
    """A message of a partition for each device."""

    device: str


def compare(server: Server, effort: Effort) -> list[Comparison]:
    """Measure milliseconds for each number of partitions, and at rest."""
    sizes = PARTITIONS[:2] if effort.quick else PARTITIONS
    stores = [_filled(server, size, (effort.rounds + 2) * PER_SLICE) for size in sizes]
    contenders = [
        Contender(f"{size:,} partitions", partial(_claim_and_ack, store))
        for size, store in zip(sizes, stores, strict=True)
    ]
    idle = penstock.connect(server.ours("claims_idle", 0))
    idle.register_consumer_group("bench")
    idle.declare(ReadingTaken)
    contenders.append(Contender("at rest", partial(_idle, idle)))
    figures = measure("claim and ack", "ms", contenders, effort.rounds)
    for store in (*stores, idle):
        store.close()
    server.drop(*(f"claims_{size}" for size in sizes), "claims_idle")
    smallest, *larger, rest = figures.values()
    ratios = [ratio(one, smallest, at_most=1.5) for one in larger]
    ratios.append(ratio(rest, smallest, at_most=0.1))
    return [Comparison("Claim and acknowledge", list(figures.values()), ratios, NOTES)]


def _filled(server: Server, partitions: int, messages: int) -> Store:
    """Return a store with so many partitions, and messages for all slices, routed."""
    url = server.ours(f"claims_{partitions}", 0)
    store = penstock.connect(url)
    store.register_consumer_group("bench")
    for first in range(0, max(partitions, messages), 10_000):
        numbers = range(first, min(first + 10_000, max(partitions, messages)))
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
