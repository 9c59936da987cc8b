"""`penstock lake`: the Iceberg tables of a store, and their upkeep."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import SpinnerColumn, TimeElapsedColumn

from penstock.cli.printing import TerminalProgress, counted, print_json, print_list, printable
from penstock.cli.target import Json, command_group, duration, open_existing

if TYPE_CHECKING:  # needs the extra `lake`
    from penstock.lake import Maintained


def list_tables(json: Json = False) -> None:
    """List the Iceberg tables in the store's catalog, with their sizes and last commits."""
    from penstock.lake import catalog, tables

    with open_existing() as store:
        print_list(
            tables(catalog(store)),
            json,
            "table >rows >files >size >snapshots last_commit written_by",
            lambda one: (
                one.name,
                one.rows,
                one.files,
                shown_size(one.size_in_bytes),
                one.snapshots,
                one.last_commit,
                one.written_by,
            ),
        )


def maintain_tables(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="TABLE...", help="Tables; default: all.")
    ] = None,
    keep_snapshots: Annotated[
        timedelta | None,
        typer.Option(
            parser=duration,
            metavar="DURATION",
            help="Keep snapshots newer than this; default: 5d. The newest 100 at most.",
        ),
    ] = None,
    keep_files: Annotated[
        timedelta | None,
        typer.Option(
            parser=duration,
            metavar="DURATION",
            help="Keep files that no snapshot names for this long; default: 1d. Longer than a "
            "step takes, and than a query.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Compact small files, expire old snapshots, and remove files that no snapshot names."""
    from penstock.lake import catalog, maintain, maintain_all
    from penstock.lake.unused import KEEP_FILES_FOR
    from penstock.lake.upkeep import KEEP_SNAPSHOTS_FOR, check_table

    columns = SpinnerColumn(), "{task.description}", TimeElapsedColumn()
    with open_existing() as store, TerminalProgress(*columns) as bar:
        found, task = catalog(store), bar.add_task("", total=None)
        for name in names or ():
            check_table(found, name)  # before the first of them is changed
        choices: Any = {
            "keep_snapshots_for": KEEP_SNAPSHOTS_FOR if keep_snapshots is None else keep_snapshots,
            "keep_files_for": KEEP_FILES_FOR if keep_files is None else keep_files,
            "progress": lambda doing: bar.update(task, description=doing),
        }
        every = maintain_all(found, **choices)
        for done in (maintain(found, name, **choices) for name in names) if names else every:
            print_json(done) if json else print(printable(_told(done)))


def _told(done: Maintained) -> str:
    """Return what was done to a table, as one line."""
    parts = []
    if done.compacted_files:
        parts.append(f"{counted(done.compacted_files, 'file')} became {done.written_files}")
    if done.expired_snapshots:
        parts.append(f"{counted(done.expired_snapshots, 'snapshot')} expired")
    if done.held_back_by:
        parts.append(f"older snapshots kept for {', '.join(done.held_back_by)}")
    if done.removed_files:
        size = shown_size(done.removed_bytes)
        parts.append(f"{counted(done.removed_files, 'unused file')} removed ({size})")
    if done.unused_files:
        parts.append(f"{counted(done.unused_files, 'unused file')} kept for now")
    return f"{done.table}: {', '.join(parts) or 'nothing to do'}"


def shown_size(size: int) -> str:
    """Return a number of bytes in its largest unit."""
    number = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


lake = command_group(
    "lake",
    "The Iceberg tables of the store: list them, and keep them in order.",
    {"maintain": maintain_tables},
    list_tables,
)
