"""Pipelines in files, as users write them, and the line where each goes wrong."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from penstock.errors import GraphError
from penstock.pipeline import load
from penstock.pipeline.checks import check

HEAD = "from penstock.pipeline import Latest, Pipeline\n\npipe = Pipeline('shop')\n"


def write_file(folder: Path, text: str, name: str = "shop.py") -> Path:
    """Write a file that begins with an empty pipeline, and return where it is."""
    file = folder / name
    file.write_text(HEAD + dedent(text))
    return file


def line_marked(file: Path) -> str:
    """Return the place that the file marks with `# here`."""
    lines = file.read_text().splitlines()
    number = next(n for n, line in enumerate(lines, 1) if line.endswith("# here"))
    return f"{file.name}:{number}"


def refusal(file: Path) -> str:
    """Return what is wrong with the file's pipeline, after seeing that it is said where."""
    with pytest.raises(GraphError) as caught:
        check(load(str(file)))
    assert caught.value.location == line_marked(file)
    assert str(caught.value).startswith(f"{line_marked(file)}: ")
    return caught.value.problem
