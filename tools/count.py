"""Count the tests of revisions, to compare them: `python tools/count.py b196ef0 HEAD`.

It counts the functions that pytest collects, their cases with all parameters, and their checks:
`assert` statements and `pytest.raises`, including helpers.
"""

from __future__ import annotations

import ast
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main(revisions: list[str]) -> None:
    """Print a table with a row for each revision."""
    print(f"{'revision':<12}{'files':>8}{'functions':>11}{'cases':>8}{'asserts':>9}{'raises':>8}")
    for revision in revisions:
        with tempfile.TemporaryDirectory() as folder:
            unpack(revision, Path(folder))
            found = count(Path(folder) / "tests")
            cases = collected_cases(Path(folder))
        print(
            f"{revision:<12}{found['file']:>8,}{found['function']:>11,}{cases:>8,}"
            f"{found['assert']:>9,}{found['raises']:>8,}"
        )


def unpack(revision: str, folder: Path) -> None:
    """Write the files of a revision into a folder."""
    archive = subprocess.check_output(["git", "archive", revision], cwd=ROOT)
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")


def count(tests: Path) -> Counter[str]:
    """Count files, test functions, assert statements and expected errors below a folder."""
    return Counter(kind for path in tests.rglob("*.py") for kind in _kinds(path))


def _kinds(path: Path) -> Iterator[str]:
    is_test = path.name.startswith("test_")
    if is_test:
        yield "file"
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if is_test and name.startswith("test_"):
                    yield "function"
            case ast.Assert():
                yield "assert"
            case ast.Call(func=ast.Attribute(value=ast.Name("pytest"), attr="raises")):
                yield "raises"


def collected_cases(folder: Path) -> int:
    """Return the number of cases that pytest collects in an unpacked revision."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-q", "tests"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{folder / 'src'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    by_file = [line.rpartition(": ")[2] for line in done.stdout.splitlines() if "::" not in line]
    return sum(int(number) for number in by_file if number.isdigit())


if __name__ == "__main__":
    main(sys.argv[1:] or ["HEAD"])
