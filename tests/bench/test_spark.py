"""What the comparisons with Spark rest on: a driver if there is one, and a look at memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.printing import as_text
from bench.results import Comparison, Figure
from bench.spark import driver, memory

HOLD = "held = bytes(range(256)) * 400_000; print('held', flush=True); input()"


def test_a_driver_that_was_fetched_is_used_again(tmp_path: Path) -> None:
    jar = tmp_path / driver.JAR
    jar.parent.mkdir(parents=True)
    jar.touch()

    assert driver.find_driver(installed=tmp_path / "nowhere", cache=tmp_path) == jar


def test_a_machine_without_a_driver_and_without_apt_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert driver.find_driver(installed=tmp_path / "nowhere", cache=tmp_path) is None


def test_the_memory_of_a_worker_is_seen_while_it_lives() -> None:
    command = [sys.executable, "-c", HOLD, "pyspark.worker"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None

        peak = memory.peak_megabytes(worker.stdout.readline)

        worker.communicate(b"\n")
    assert 100 < peak < 1_000


def test_contenders_that_stand_alone_have_no_table_of_ratios() -> None:
    alone = Comparison("reads", [Figure("ours", "rows/s", [2.0])], [])

    assert "ratio" not in as_text(alone)
