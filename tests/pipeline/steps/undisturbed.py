"""What comes of all shapes when nothing goes wrong: what runs that died are compared with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from penstock import Store
from penstock.pipeline.step import run_step
from tests.pipeline.steps.points import INSIDE, reach, walking
from tests.pipeline.steps.shapes import SHAPES, fill, pipeline, result
from tests.pipeline.steps.workshop import Workshop


@dataclass
class Undisturbed:
    """The points that each shape passes, and its result."""

    paths: dict[str, list[str]] = field(default_factory=dict)
    results: dict[str, dict[str, Any]] = field(default_factory=dict)


def run_undisturbed(store: Store, spark: SparkSession) -> Undisturbed:
    """Run all shapes to their end."""
    found, workshop = Undisturbed(), Workshop(store, spark)
    fill(store)
    for name in SHAPES:
        bench = workshop.bench(pipeline(name), before_commit=lambda: reach(INSIDE))
        with walking() as path:
            while run_step(bench) is not None:
                pass
        found.paths[name] = path.passed
        found.results[name] = result(workshop, name)
    workshop.close()
    return found
