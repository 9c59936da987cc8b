"""Claim and acknowledge with few partitions, with many, with a hot key, and with nothing to do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

import psycopg

import penstock
from bench.measuring import Contender, Effort, measure, tell
from bench.results import Comparison, ratio
from bench.server import Server
from penstock import Store, TypedMessage
from penstock.database.operation import call, only_value

PER_SLICE = 100
#: how many partitions, and how many messages at least
SHAPES = ((100, 0), (10_000, 0), (100_000, 0), (1, 200_000))
SHAPES_WHEN_QUICK = ((100, 0), (2_000, 0), (1, 5_000))
NOTES = [
    "One worker claims one message of a partition, acknowledges it and goes on to the next; all "
    "messages are routed beforehand. One partition means that every message has the same key. At "
    "rest means that a claim finds nothing to do; `select 1`, from the same store, is what any "
    "call takes at least: to wake two processes up.",
]


class ReadingTaken(TypedMessage, type="reading.taken"):
    """A message of a partition for each device."""

    device: str


def compare(server: Server, effort: Effort) -> Iterator[Comparison]:
    """Measure milliseconds for each shape of the log, and at rest."""
    shapes = SHAPES_WHEN_QUICK if effort.quick else SHAPES
    rounds = effort.rounds * (1 if effort.quick else 3)
    enough = (rounds + 2) * PER_SLICE
    stores = {
        _name(*shape): _filled(server, f"claims_{number}", shape[0], max(*shape, enough))
        for number, shape in enumerate(shapes)
    }
    contenders = [Contender(name, partial(_claim_and_ack, store)) for name, store in stores.items()]
    idle = _filled(server, "claims_at_rest", 1, 1)
    _handle_one(idle)
    contenders.append(Contender("at rest", partial(_idle, idle)))
    contenders.append(Contender("select 1", partial(_select_one, idle)))
    figures = measure("claim and ack", "ms", contenders, rounds)
    for store in (*stores.values(), idle):
        store.close()
    server.drop(*(f"claims_{number}" for number in range(len(shapes))), "claims_at_rest")
    smallest, *larger, rest, least = figures.values()
    ratios = [ratio(one, smallest, at_most=1.5) for one in larger]
    ratios += [ratio(rest, smallest, at_most=0.1), ratio(rest, least)]
    yield Comparison("Claim and acknowledge", list(figures.values()), ratios, NOTES)


def _name(partitions: int, messages: int) -> str:
    if messages:
        return f"{partitions} partition of {messages:,} messages"
    return f"{partitions:,} partitions"


def _filled(server: Server, database: str, partitions: int, messages: int) -> Store:
    """Return a store with so many partitions and messages, all of them routed."""
    tell(f"claims: making {messages:,} messages in {partitions:,} partitions")
    url = server.ours(database, 0)
    store = penstock.connect(url)
    store.groups.register("bench")
    for first in range(0, messages, 10_000):
        numbers = range(first, min(first + 10_000, messages))
        store.append([ReadingTaken(device=str(number % partitions)) for number in numbers])
    claim = _claim(store)
    assert claim is not None
    store.groups.release(claim)
    with psycopg.connect(url, autocommit=True) as connection:
        route = "select penstock.route(g) from penstock.consumer_groups g"
        while connection.execute(route).fetchone() == (True,):
            pass
        connection.execute("vacuum analyze")
    return store


def _claim(store: Store) -> penstock.Claim | None:
    return store.groups.claim_next(
        "bench", partition_by="device", handled_types=[ReadingTaken], batch_size=1
    )


def _handle_one(store: Store) -> None:
    claim = _claim(store)
    assert claim is not None
    store.groups.ack(claim)


def _claim_and_ack(store: Store) -> float:
    began = time.perf_counter()
    for _ in range(PER_SLICE):
        _handle_one(store)
    return (time.perf_counter() - began) / PER_SLICE * 1000


def _select_one(store: Store) -> float:
    nothing = call("select 1", "select 1", (), only_value)
    began = time.perf_counter()
    for _ in range(PER_SLICE):
        store.run(nothing)
    return (time.perf_counter() - began) / PER_SLICE * 1000


def _idle(store: Store) -> float:
    began = time.perf_counter()
    for _ in range(PER_SLICE):
        assert _claim(store) is None
    return (time.perf_counter() - began) / PER_SLICE * 1000
