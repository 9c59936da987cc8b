"""Iceberg tables: commits as they pile up, a step beside Spark's own writer, scans of history."""

from __future__ import annotations

from collections.abc import Iterator

from bench.lake import commits, steps
from bench.measuring import Effort
from bench.results import Comparison
from bench.server import Server
from bench.spark import archived
from bench.spark.place import spark_place


def compare(server: Server, effort: Effort) -> Iterator[Comparison]:
    """Measure commits first: they need no Spark."""
    quick = effort.quick
    yield commits.compare(server, effort.rounds, many=100 if quick else commits.MANY)
    with spark_place(server) as place:
        yield steps.compare(place, 40_000 if quick else 100_000, 1 if quick else 7)
        yield from archived.compare(place, 100_000 if quick else 2_000_000, 1 if quick else 7)
