"""Measure the size of the source at some revisions: `python tools/measure.py b196ef0 HEAD`.

Prints the table of docs/architecture.md. Generated modules are counted separately, since they are
neither written nor reviewed.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from statistics import median

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Source:
    """The files of the package at one revision, by path below `src/penstock`."""

    python: dict[str, str]
    generated: dict[str, str]
    sql: dict[str, str]


def source_at(revision: str) -> Source:
    """Read the package from git."""
    command = ["git", "archive", revision, "src/penstock"]
    archive = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    found: dict[str, str] = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for member in files:
            content = files.extractfile(member) if member.isfile() else None
            if content is not None and PurePath(member.name).suffix in (".py", ".sql"):
                path = PurePath(member.name).relative_to("src/penstock").as_posix()
                found[path] = content.read().decode()
    python = {path: text for path, text in found.items() if path.endswith(".py")}
    generated = {path: text for path, text in python.items() if text.startswith("# Generated ")}
    written = {path: text for path, text in python.items() if path not in generated}
    return Source(written, generated, {p: t for p, t in found.items() if p.endswith(".sql")})


def lines(files: dict[str, str]) -> int:
    """Return the number of lines of the files."""
    return sum(len(text.splitlines()) for text in files.values())


def functions(files: dict[str, str]) -> Iterator[int]:
    """Yield the number of lines of each function."""
    for text in files.values():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield (node.end_lineno or node.lineno) - node.lineno + 1


ROWS: dict[str, Callable[[Source], float]] = {
    "Python files, written": lambda s: len(s.python),
    "Python lines, written": lambda s: lines(s.python),
    "Python lines, generated": lambda s: lines(s.generated),
    "median file, lines": lambda s: median(len(t.splitlines()) for t in s.python.values()),
    "longest file, lines": lambda s: max(len(t.splitlines()) for t in s.python.values()),
    "files below 60 lines": lambda s: sum(len(t.splitlines()) < 60 for t in s.python.values()),
    "median function, lines": lambda s: median(functions(s.python)),
    "functions past 40 lines": lambda s: sum(one > 40 for one in functions(s.python)),
    "files in pipeline/": lambda s: sum(path.startswith("pipeline/") for path in s.python),
    "SQL lines": lambda s: lines(s.sql),
}


def main() -> None:
    """Print one column for each revision."""
    revisions = sys.argv[1:] or ["HEAD"]
    sources = [source_at(one) for one in revisions]
    print("| | " + " | ".join(revisions) + " |")
    print("|---|" + "---:|" * len(revisions))
    for name, measure in ROWS.items():
        print(f"| {name} | " + " | ".join(f"{measure(one):,.0f}" for one in sources) + " |")


if __name__ == "__main__":
    main()
