"""Showing things to people.

What stands in the log is shown as it is, never as markup, and control characters never reach the
terminal. Lines are wrapped for a terminal only: in a pipe each keeps its length.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from rich.console import Console, ConsoleDimensions
from rich.highlighter import JSONHighlighter
from rich.table import Table
from rich.text import Text

_UNWRAPPED = 1_000_000
INDENT = "    "
# and what turns the direction of writing around
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class _PipeConsole(Console):
    """A console that lets the caller know when nobody reads any more."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console(*, stderr: bool = False) -> Console:
    """Return the console for results, or for all that is no result."""
    made = _PipeConsole(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.size = ConsoleDimensions(_UNWRAPPED, 25)
    return made


def note(text: str) -> None:
    """Tell something that is no result, on stderr."""
    console(stderr=True).print(Text(printable(text)), style="dim", soft_wrap=True)


def complain(text: str) -> None:
    """Tell what went wrong, on stderr: the first line in red, any details below it."""
    first, *details = text.splitlines() or [""]
    out = console(stderr=True)
    out.print(Text(f"penstock: {printable(first)}"), style="bold red", soft_wrap=True)
    for line in details:
        out.print(Text(f"  {printable(line)}"), style="dim", soft_wrap=True)


def print_json(value: Any, *, indented: bool = False) -> None:
    """Print one value as JSON on stdout, on a line of its own unless indented. UTF-8 always."""
    encoded = msgspec.json.encode(value)
    sys.stdout.buffer.write((msgspec.json.format(encoded) if indented else encoded) + b"\n")


def printable(text: str) -> str:
    """Return `text` with control characters shown, so that they cannot act on a terminal."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def print_wrapped(out: Console, text: Text, indent: str = "", hanging: str = "") -> None:
    """Print text that may be long: its first line after `indent`, the others after `hanging`."""
    if out.width == _UNWRAPPED:
        out.file.write(f"{indent}{text.plain}\n")  # ten times as fast
        return
    width = max(20, out.width - max(len(indent), len(hanging)))
    for number, line in enumerate(text.wrap(out, width)):
        line.rstrip()
        out.print(Text(hanging if number else indent).append(line), soft_wrap=True)


def print_object(out: Console, value: Mapping[str, Any], label: str = "") -> None:
    """Print a JSON object, compact and indented."""
    text = Text(printable(msgspec.json.format(msgspec.json.encode(value), indent=0).decode()))
    if out.is_terminal:
        JSONHighlighter().highlight(text)
    print_wrapped(out, Text.assemble((label, "dim"), text), INDENT, INDENT)


def facts(rows: Mapping[str, str | Text]) -> Table:
    """Return a table of names and what they are."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def table(**columns: str) -> Table:
    """Return a table with these columns, each justified as its value says."""
    made = Table(box=None, padding=(0, 2, 0, 0), header_style="cyan", pad_edge=False)
    for name, justify in columns.items():
        made.add_column(name.replace("_", " "), justify=justify, overflow="fold")  # type: ignore[arg-type]
    return made


def shown_time(time: datetime) -> str:
    """Return a time of the log, which is UTC, to the millisecond."""
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def shown_age(age: timedelta | None) -> str:
    """Return how long something takes already, in the two units that matter."""
    if age is None:
        return "?"
    seconds = int(age.total_seconds())
    for unit, size, smaller, smaller_size in _UNITS:
        if seconds >= size:
            rest = seconds % size // smaller_size
            return f"{seconds // size} {unit} {rest} {smaller}"
    return f"{seconds} s"


_UNITS = (("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60), ("min", 60, "s", 1))
