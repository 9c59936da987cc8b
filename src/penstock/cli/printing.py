"""Formatting output.

Text from the log is never interpreted as markup, and control characters are escaped. Lines are
wrapped in a terminal only, not in a pipe.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec
from rich.console import Console, ConsoleDimensions
from rich.highlighter import JSONHighlighter
from rich.progress import Progress, ProgressColumn
from rich.table import Table
from rich.text import Text

from penstock.loops.durations import shown_age

T = TypeVar("T")

_UNWRAPPED = 1_000_000
INDENT = "    "
# control characters, line separators, and marks that change the direction of text
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class _PipeConsole(Console):
    """A console that raises BrokenPipeError instead of exiting."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console(*, stderr: bool = False) -> Console:
    """Return the console for results (stdout) or for notes and errors (stderr)."""
    made = _PipeConsole(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.size = ConsoleDimensions(_UNWRAPPED, 25)
    return made


class TerminalProgress(Progress):
    """Progress on stderr, which is shown in a terminal only."""

    def __init__(self, *columns: str | ProgressColumn, transient: bool = True) -> None:
        out = console(stderr=True)
        super().__init__(*columns, console=out, transient=transient, disable=not out.is_terminal)


def note(text: str) -> None:
    """Print a note on stderr."""
    console(stderr=True).print(Text(printable(text)), style="dim", soft_wrap=True)


def print_error(text: str) -> None:
    """Print an error on stderr: the first line in red, any details below it."""
    first, *details = text.splitlines() or [""]
    out = console(stderr=True)
    out.print(Text(f"penstock: {printable(first)}"), style="bold red", soft_wrap=True)
    for line in details:
        out.print(Text(f"  {printable(line)}"), style="dim", soft_wrap=True)


def print_json(value: Any, *, indented: bool = False) -> None:
    """Print one value as JSON on stdout, in UTF-8, on one line unless indented."""
    encoded = msgspec.json.encode(value)
    sys.stdout.buffer.write((msgspec.json.format(encoded) if indented else encoded) + b"\n")


def printable(text: str) -> str:
    """Return `text` with control characters escaped."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def print_wrapped(out: Console, text: Text, indent: str = "", hanging: str = "") -> None:
    """Print wrapped text: the first line after `indent`, the others after `hanging`."""
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


def print_facts(rows: Mapping[str, object]) -> None:
    """Print names and values."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, value if isinstance(value, Text) else shown(value))
    console().print(table)


def print_table(columns: str, rows: Iterable[Iterable[object]]) -> None:
    """Print rows below the names of their columns; `>` before a name aligns its column right."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="cyan", pad_edge=False)
    for name in columns.split():
        title = name.removeprefix(">").replace("_", " ")
        table.add_column(title, justify="left" if name[0] != ">" else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(shown, row))
    console().print(table)


def print_list(
    found: Iterable[T], json: bool, columns: str, row: Callable[[T], Iterable[object]]
) -> None:
    """Print values as JSON, one per line, or as a table with the `row` of each."""
    if not json:
        print_table(columns, map(row, found))
        return
    for one in found:
        print_json(one)


def shown(value: object) -> str:
    """Return a value as people read it, with control characters escaped; nothing for None."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return shown_time(value)
    if isinstance(value, timedelta):
        return shown_age(value)
    if isinstance(value, dict | list | bool):
        return printable(msgspec.json.encode(value).decode())
    return printable(str(value))


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is 1."""
    return f"{number} {noun}{'s' * (number != 1)}"


def shown_time(time: datetime) -> str:
    """Return a UTC time with milliseconds."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
