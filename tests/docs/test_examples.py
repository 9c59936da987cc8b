"""Every example runs by itself, on a log that others have written to, and prints what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.docs.running import check_lines

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
OUTPUT = "\n# Output:\n"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: str(example.name))
def test_an_example_prints_what_it_says_also_the_second_time(
    example: Path, database_url: str, tmp_path: Path
) -> None:
    expected = _expected_output(example)

    first = _run(example, database_url, tmp_path)
    second = _run(example, database_url, tmp_path)

    check_lines(example.name, first, expected)
    check_lines(f"{example.name}, the second time,", second, expected)


def _expected_output(example: Path) -> list[str]:
    _, heading, output = example.read_text(encoding="utf-8").partition(OUTPUT)
    assert heading, f"{example.name} does not say what it prints"
    return [line.removeprefix("#").removeprefix(" ") for line in output.splitlines()]


def _run(example: Path, url: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, str(example)],
        cwd=folder,
        env={**os.environ, "PENSTOCK_URL": url},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout
