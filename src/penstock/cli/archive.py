"""`penstock archive`: move old messages to files."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer
from rich.progress import SpinnerColumn, TimeElapsedColumn

from penstock.cli.printing import TerminalProgress, counted
from penstock.cli.target import duration, open_existing
from penstock.log.archive import MAX_LOAD


def archive(
    category: Annotated[str, typer.Argument(help="A category, such as account.")],
    older_than: Annotated[
        timedelta,
        typer.Option(
            parser=duration,
            metavar="DURATION",
            help="Move messages older than this: 90d, 12h, 30min.",
        ),
    ],
    ignore_consumers: Annotated[
        bool,
        typer.Option(
            "--ignore-consumers",
            help="Also move messages that consumers have not read yet: they read them from files.",
        ),
    ] = False,
    max_load: Annotated[
        float,
        typer.Option(
            min=0.01, max=1, help="The share of the time that it works, for the sake of writers."
        ),
    ] = MAX_LOAD,
    reindex: Annotated[
        bool,
        typer.Option(help="Rebuild indexes of the log that are mostly empty afterwards."),
    ] = True,
) -> None:
    """Move the old messages of a category to files, where every read still finds them.

    The files are an Iceberg table in the warehouse (PENSTOCK_WAREHOUSE). Keeps the last message of
    each stream in the database. At the end, indexes of the log that are mostly empty are rebuilt
    while others write. Requires the role that owns the schema.
    """
    columns = SpinnerColumn(), "{task.description}", TimeElapsedColumn()
    with open_existing() as store, TerminalProgress(*columns) as bar:
        task = bar.add_task("moving 0", total=None)
        archived = store.admin.archive(
            category,
            older_than,
            ignore_consumers=ignore_consumers,
            max_load=max_load,
            reindex=reindex,
            progress=lambda moved: bar.update(task, description=f"moving {moved}"),
            reindexing=lambda index: bar.update(task, description=f"rebuilding index {index}"),
        )
    print(f"moved {counted(archived.moved, 'message')} to the archive")
    if archived.rebuilt:
        print(f"rebuilt mostly empty indexes: {', '.join(archived.rebuilt)}")
