"""The pages of the documentation, and the fenced blocks in them.

A page may say, in a comment that no reader sees, what its blocks run on:

    <!-- database: genuine -->      a genuine Message DB
    <!-- database: empty -->        a database with nothing in it
    <!-- database: embedded -->     none: `penstock.connect()` starts the embedded server

Without that it is a fresh database with Penstock installed. A block that cannot run has this line
above it, with its reason:

    <!-- not run: it would install packages -->

A block with a title, as in ```` ```python title="shop.py" ````, is a file of that name: it is put
into the folder where the page's other blocks run.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(
    r"(?P<indent> *)(?P<fence>`{3,}|~{3,}) *(?P<language>[\w+-]*)(?: +title=\"(?P<title>.+)\")?.*"
)
_DATABASE = re.compile(r"^<!-- database: (\w+) -->$", re.MULTILINE)
_NOT_RUN = re.compile(r" *<!-- not run: (.+) -->")


@dataclass(frozen=True)
class Block:
    """A fenced block: the code, and where in which page it stands."""

    page: Path
    line: int
    language: str
    text: str
    not_run: str | None = None
    title: str | None = None


def name(page: Path) -> str:
    """The page's path as people say it."""
    return page.relative_to(ROOT).as_posix() if page.is_relative_to(ROOT) else page.name


def database(page: Path) -> str:
    """What the blocks of the page run on."""
    found = _DATABASE.search(page.read_text(encoding="utf-8"))
    return found[1] if found else "penstock"


def uses_spark(page: Path) -> bool:
    """Whether its blocks start Spark, which all pages of a test run share.

    A file is run by a command, if at all, and that has its own Spark.
    """
    return any(imports_spark(block.text) for block in blocks(page) if block.title is None)


def runs_pipeline(page: Path) -> bool:
    """Whether a command of its blocks starts Spark."""
    return any("$ penstock run" in block.text for block in blocks(page) if block.not_run is None)


def imports_spark(program: str) -> bool:
    """Whether a program imports what needs Spark."""
    return "penstock.spark" in program or "penstock.pipeline" in program


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found: list[Block] = []
    lines = page.read_text(encoding="utf-8").splitlines()
    number = 0
    while number < len(lines):
        if opening := _FENCE.fullmatch(lines[number]):
            end = _end(lines, number + 1, opening["indent"] + opening["fence"])
            text = textwrap.dedent("\n".join(lines[number + 1 : end]))
            marker = _NOT_RUN.fullmatch(_line_above(lines, number))
            reason = marker[1] if marker else None
            language, title = opening["language"], opening["title"]
            found.append(Block(page, number + 2, language, text, reason, title))
            number = end
        number += 1
    return found


def prose(page: Path) -> str:
    """The page without its fenced blocks and inline code."""
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"^( *)(`{3,}|~{3,}).*?^\1\2 *$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", text)


def _end(lines: list[str], start: int, closing: str) -> int:
    for number in range(start, len(lines)):
        if lines[number].rstrip() == closing:
            return number
    raise AssertionError(f"the block that begins in line {start} has no end")


def _line_above(lines: list[str], number: int) -> str:
    above = [line for line in lines[:number] if line.strip()]
    return above[-1] if above else ""
