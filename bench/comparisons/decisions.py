"""What a decision costs on a short history and on a long one: promise 6, no growth."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from functools import partial

import psycopg

import penstock
from bench.measuring import Contender, Effort, measure, tell
from bench.results import Comparison, ratio
from bench.server import Server, settle
from penstock import Decider, Store, TypedMessage

SIZES = (10, 1_000, 100_000)
SLICE = 40  # decisions: so few that a short history stays short
EVERY = 10  # messages between two snapshots, so that the shortest history has one
NOTE = (
    f"Microseconds of one `store.decide` that appends a message, one client, {SLICE} in a row. "
    "The commit does not wait for the disk (synchronous_commit = off), which would hide the rest. "
    "The state is a number."
)
FILL = """
insert into message_store.messages (id, stream_name, position, type, data)
select gen_random_uuid(), 'bench.seat.taken-' || {size}, n, 'bench.seat.taken',
  jsonb_build_object('course', 'course of ' || {size})
from generate_series(0, {size} - 1) n
"""


class SeatTaken(TypedMessage, type="bench.seat.taken"):
    """What a boundary is made of."""

    course: str


def take(taken: int, course: str) -> Iterable[SeatTaken]:
    """Take a seat, whatever the number of those taken."""
    return [SeatTaken(course=course)]


SEATS = Decider[int, str](
    initial=0,
    evolve=lambda taken, event: taken + 1,
    decide=take,
    name="seats",
    snapshot_every=EVERY,
)
WITHOUT_SNAPSHOTS = Decider[int, str](SEATS.initial, SEATS.evolve, SEATS.decide)


def compare(server: Server, effort: Effort) -> Iterator[Comparison]:
    """Measure decisions on boundaries of different sizes, warm and from a snapshot."""
    url = server.ours("decisions", 0)
    quick = f"{url}{'&' if '?' in url else '?'}options=-csynchronous_commit%3Doff"
    with penstock.connect(quick) as warm, penstock.connect(quick, decider_cache_size=0) as cold:
        warm.declare(SeatTaken)
        _fill(url)
        for size in SIZES:  # the first decision reads it all, and saves the snapshot
            _microseconds(cold, SEATS, size, 1)
        yield _compare(
            "A decision on a kept state, as its boundary grows",
            "The store has decided on the boundary before.",
            *(warm, WITHOUT_SNAPSHOTS, effort),
        )
        yield _compare(
            "A decision from a snapshot, as its boundary grows",
            "The store keeps no states, as in a process that has just started: each decision "
            f"begins with the snapshot, and every {EVERY} messages a new one is saved.",
            *(cold, SEATS, effort),
        )
    server.drop("decisions")


def _compare(
    title: str, note: str, store: Store, decider: Decider[int, str], effort: Effort
) -> Comparison:
    contenders = [
        Contender(f"at {size:,} messages", partial(_microseconds, store, decider, size, SLICE))
        for size in SIZES
    ]
    smallest, *larger = measure(title, "µs", contenders, effort.rounds * 2).values()
    ratios = [ratio(one, smallest, at_most=1.3) for one in larger]
    return Comparison(title, [smallest, *larger], ratios, [NOTE, note])


def _microseconds(store: Store, decider: Decider[int, str], size: int, count: int) -> float:
    course = f"course of {size}"
    conditions = SeatTaken.to_conditions(course=course)
    began = time.perf_counter()
    for _ in range(count):
        store.decide(decider, course, conditions)
    return (time.perf_counter() - began) / count * 1e6


def _fill(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for size in SIZES:
            tell(f"decisions: making a boundary of {size:,} messages")
            connection.execute(FILL.format(size=size).encode())
    settle(url)
