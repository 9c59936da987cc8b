"""Pipelines on Spark: their speed, what a step costs as the log grows, how soon, and poison."""

from __future__ import annotations

from bench.measuring import Effort
from bench.pipeline import following, poison, steps, throughput
from bench.results import Comparison
from bench.server import Server
from bench.spark.place import spark_place

SIZES = (100_000, 2_000_000)
SIZES_WHEN_QUICK = (20_000, 100_000)


def compare(server: Server, effort: Effort) -> list[Comparison]:
    """Measure all of it in one session."""
    quick = effort.quick
    with spark_place(server) as place:
        compared = [
            throughput.compare(place, 20_000 if quick else 300_000, 1 if quick else 7),
            steps.compare(place, SIZES_WHEN_QUICK if quick else SIZES, effort.rounds),
            following.compare(place, 10 if quick else 200),
        ]
        return compared if quick else [*compared, poison.compare(place, 100_000, 7, 3)]
