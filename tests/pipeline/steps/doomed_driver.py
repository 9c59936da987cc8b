"""A driver that runs all shapes side by side until each has come to its place, and is then killed.

Whoever has come to its place stands there: with its connections, and whatever it has begun.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import penstock
from penstock.pipeline import session
from penstock.pipeline.step import run_step
from tests.pipeline.conftest import SETTINGS
from tests.pipeline.steps.points import INSIDE, points_are_noticed, reach, walking
from tests.pipeline.steps.shapes import pipeline
from tests.pipeline.steps.workshop import Workshop


def main(url: str, places: dict[str, int]) -> None:
    all_are_there = Barrier(len(places), action=die)
    with (
        points_are_noticed(),
        penstock.connect(url) as store,
        ThreadPoolExecutor(len(places)) as threads,
    ):
        workshop = Workshop(store, session("doomed", master="local[2]", config=SETTINGS))
        for name, at in places.items():
            threads.submit(go_to, workshop, name, at, all_are_there)


def go_to(workshop: Workshop, name: str, at: int, all_are_there: Barrier) -> None:
    """Run the steps of a shape up to a place, and stand there."""

    def stand() -> None:
        os.write(1, b"arrived\n")
        all_are_there.wait()

    bench = workshop.bench(pipeline(name), before_commit=lambda: reach(INSIDE))
    with walking(lambda passed: len(passed) == at + 1, stand):
        while run_step(bench) is not None:
            pass


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
