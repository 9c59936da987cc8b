"""`penstock retain`: remove the oldest messages."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer
from rich.progress import SpinnerColumn, TimeElapsedColumn

from penstock.cli.printing import TerminalProgress, counted, note
from penstock.cli.target import duration, open_existing


def retain(
    target: Annotated[
        str,
        typer.Argument(
            help="A stream (account-123), a category (account) or a queue's stream (queue-mail)."
        ),
    ],
    keep_count: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Keep the newest N messages.")
    ] = None,
    keep_for: Annotated[
        timedelta | None,
        typer.Option(
            parser=duration,
            metavar="DURATION",
            help="Keep messages newer than this: 90d, 12h, 30min.",
        ),
    ] = None,
    keep_from: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Keep messages from this position of a stream, or global position of a category.",
        ),
    ] = None,
    ignore_consumers: Annotated[
        bool,
        typer.Option(
            "--ignore-consumers", help="Also remove messages that consumers have not read yet."
        ),
    ] = False,
) -> None:
    """Remove the oldest messages of a stream, a category or a queue.

    Keeps messages that a consumer or session has not read, and the last message of each stream.
    Requires the role that owns the schema.
    """
    if [keep_count, keep_for, keep_from].count(None) != 2:
        raise typer.BadParameter("give one of --keep-count, --keep-for and --keep-from")
    columns = SpinnerColumn(), "removing {task.completed}", TimeElapsedColumn()
    with open_existing() as store, TerminalProgress(*columns) as bar:
        task = bar.add_task("removing", total=None)
        retained = store.admin.retain(
            target,
            keep_count=keep_count,
            keep_for=keep_for,
            keep_from=keep_from,
            ignore_consumers=ignore_consumers,
            progress=lambda removed: bar.update(task, completed=removed),
        )
    print(f"removed {counted(retained.removed, 'message')}")
    if retained.held_back_by is not None:
        note(
            f"{retained.held_back_by} has not read the following messages, so they are kept; "
            "--ignore-consumers removes them"
        )
