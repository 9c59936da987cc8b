"""Drivers in processes of their own, which can be killed with all that belongs to them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import psutil

from tests.forked_python import ROOT, spark_server

SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


class Driver:
    """A driver that takes orders, one after the other."""

    def __init__(self, master: str, config: Mapping[str, str] = {}) -> None:
        self._process = spark_server().start(
            *("-m", "tests.spark.faults.driver_process"),
            *(master, json.dumps({**SETTINGS, **config})),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,  # where `tests` is found
        )

    def order(self, job: str, **options: Any) -> None:
        """Have a job of `jobs.py` done."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"job": job, **options}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> str:
        """Return what became of the first order that was not answered yet."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def wait_until_ready(self) -> None:
        """Return once it takes orders."""
        assert self.answer() == "ready"

    def kill(self) -> None:
        """Kill it and all its processes, as a machine does that loses power."""
        if self._process.poll() is None:
            kill_trees([psutil.Process(self._process.pid)])
        self._process.communicate()


def kill_trees(roots: Iterable[psutil.Process]) -> None:
    """Kill processes and all that they started."""
    doomed = [one for root in roots for one in (root, *root.children(recursive=True))]
    for one in doomed:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    psutil.wait_procs(doomed, timeout=60)
