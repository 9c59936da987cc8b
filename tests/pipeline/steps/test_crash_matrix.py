"""A driver that dies at any point of any step: after a restart all is as if it had not.

The matrix is made of what an undisturbed run passes: every shape of a pipeline, at every point of
its steps. Here the driver's death is an exception that nothing catches, and the loss of its
connection, which leaves the database as the death of the process does. The last test kills
processes, at the same points: some in `make test`, all of them in `make chaos`.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock import Store
from penstock.pipeline.step import run_step
from tests.pipeline.steps.points import (
    INSIDE,
    POINTS,
    Death,
    points_are_noticed,
    reach,
    walking,
)
from tests.pipeline.steps.shapes import SHAPES, fill, pipeline, result
from tests.pipeline.steps.undisturbed import Undisturbed, run_undisturbed
from tests.pipeline.steps.workshop import Workshop

ROOT = Path(__file__).parents[3]
DRIVER = "tests.pipeline.steps.doomed_driver"


@pytest.fixture(scope="module", autouse=True)
def _points() -> Iterator[None]:
    with points_are_noticed():
        yield


@pytest.fixture(scope="module")
def undisturbed(shared_store: Store, spark: SparkSession, _points: None) -> Undisturbed:
    """What comes of each shape when nobody dies, and the points that it passes."""
    return run_undisturbed(shared_store, spark)


def test_the_matrix_has_every_point_and_every_shape(undisturbed: Undisturbed) -> None:
    passed = {point for path in undisturbed.paths.values() for point in path}

    assert passed == set(POINTS)
    assert set(undisturbed.paths) == set(SHAPES)


@pytest.mark.parametrize("point", POINTS)
def test_death_at_a_point(
    workshop: Workshop, store: Store, undisturbed: Undisturbed, point: str
) -> None:
    fill(store)
    doomed = [name for name, path in undisturbed.paths.items() if point in path]
    for number, name in enumerate(doomed):
        times = undisturbed.paths[name].count(point)
        die(workshop, name, point, 1 + (number + POINTS.index(point)) % min(2, times))

    for name in doomed:
        workshop.steps(pipeline(name))

    for name in doomed:
        assert result(workshop, name) == undisturbed.results[name], name


@pytest.mark.chaos
def test_killed_anywhere(
    workshop: Workshop,
    undisturbed: Undisturbed,
    new_database: Callable[[str], str],
    chaos_seconds: float,
    request: pytest.FixtureRequest,
) -> None:
    """Kill -9, each shape at another point of its own path, until each was killed at each."""
    longest = max(len(path) for path in undisturbed.paths.values())
    seed = request.config.getoption("--chaos-seed") or 1
    order = random.Random(seed).sample(range(longest), longest)
    end = time.monotonic() + chaos_seconds
    for number in order:
        with penstock.connect(new_database("penstock")) as store:
            fill(store)
            places = {
                name: (number + 3 * place) % len(path)
                for place, (name, path) in enumerate(undisturbed.paths.items())
            }
            kill_at(store, places)
            restarted = Workshop(store, workshop.spark)
            for name, at in places.items():
                restarted.steps(pipeline(name))
                died = f"{name} died {undisturbed.paths[name][at]}, at {at}: seed {seed}"
                assert result(restarted, name) == undisturbed.results[name], died
            restarted.close()
        if time.monotonic() > end:
            break


def kill_at(store: Store, places: dict[str, int]) -> None:
    """Run all shapes in a process that is killed when each has come to its place."""
    killed = subprocess.run(
        [sys.executable, "-m", DRIVER, store.settings.conninfo(), json.dumps(places)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert killed.stdout.split() == ["arrived"] * len(places)
    assert killed.returncode == -signal.SIGKILL


def die(workshop: Workshop, name: str, point: str, time: int) -> None:
    """Run the steps of a shape and die when they come to a point for the nth time."""

    def is_there(passed: list[str]) -> bool:
        return passed[-1] == point and passed.count(point) == time

    def stop() -> None:
        raise Death

    bench = workshop.bench(pipeline(name), before_commit=lambda: reach(INSIDE))
    with pytest.raises(Death), walking(is_there, stop):
        run_to_the_end(lambda: run_step(bench))
    bench.connection.close()


def run_to_the_end(step: Callable[[], object]) -> None:
    while step() is not None:
        pass
