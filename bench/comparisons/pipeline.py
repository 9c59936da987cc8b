"""Pipelines on Spark: their speed, what a step costs as the log grows, how soon, and poison."""

from __future__ import annotations

from collections.abc import Iterator

from bench.measuring import Effort
from bench.pipeline import following, poison, steps, throughput
from bench.results import Comparison
from bench.server import Server
from bench.spark.place import spark_place

SIZES = (100_000, 1_000_000)
SIZES_WHEN_QUICK = (20_000, 100_000)


def compare(server: Server, effort: Effort) -> Iterator[Comparison]:
    """Measure all of it in one session."""
    quick = effort.quick
    with spark_place(server) as place:
        yield throughput.compare(place, 20_000 if quick else 200_000, 1 if quick else 7)
        yield steps.compare(place, SIZES_WHEN_QUICK if quick else SIZES, effort.rounds * 2)
        yield following.compare(place, 10 if quick else 100)
        if not quick:
            yield poison.compare(place, messages=20_000, bad=7, rounds=3)
