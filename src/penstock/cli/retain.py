"""`penstock retain`: remove the oldest messages."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from penstock.cli.printing import console, note
from penstock.cli.target import Folder, Url, open_existing, settings_for

_DURATION = re.compile(r"(\d{1,9}) ?(s|min|h|d|w)")
_UNITS = {"s": "seconds", "min": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def retain(
    target: Annotated[
        str,
        typer.Argument(
            help="A stream (account-123), a category (account) or a queue's stream (queue-mail).",
            show_default=False,
        ),
    ],
    keep_count: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Keep so many messages.")
    ] = None,
    keep_for: Annotated[
        str | None, typer.Option(metavar="TIME", help="Keep those of this time: 90d, 12h, 30min.")
    ] = None,
    keep_from: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Keep those from here on: a stream's position, or a global position.",
        ),
    ] = None,
    ignore_consumers: Annotated[
        bool,
        typer.Option("--ignore-consumers", help="Remove also what consumers have not read yet."),
    ] = False,
    url: Url = None,
    folder: Folder = None,
) -> None:
    """Remove the oldest messages of a stream, a category or a queue.

    What a consumer or a session has not read stays, and so does the last message of each stream. It
    takes the rights of the schema's owner.
    """
    if [keep_count, keep_for, keep_from].count(None) != 2:
        raise typer.BadParameter("give one of --keep-count, --keep-for and --keep-from")
    age = None if keep_for is None else _duration(keep_for)
    with open_existing(settings_for(url, folder)) as store, _bar() as bar:
        task = bar.add_task("removing", total=None)
        retained = store.admin.retain(
            target,
            keep_count=keep_count,
            keep_for=age,
            keep_from=keep_from,
            ignore_consumers=ignore_consumers,
            progress=lambda removed: bar.update(task, completed=removed),
        )
    print(f"removed {retained.removed} {'message' if retained.removed == 1 else 'messages'}")
    if retained.held_back_by is not None:
        note(
            f"{retained.held_back_by} has not read the next: it keeps the rest, "
            "unless you give --ignore-consumers"
        )


def _bar() -> Progress:
    """Return a line that shows how far it is, on a terminal only."""
    out = console(stderr=True)
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description} {task.completed}"),
        TimeElapsedColumn(),
        console=out,
        transient=True,
        disable=not out.is_terminal,
    )


def _duration(text: str) -> timedelta:
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter(f"{text}: a number and s, min, h, d or w, such as 90d")
    try:
        return timedelta(**{_UNITS[found[2]]: int(found[1])})
    except OverflowError:
        raise typer.BadParameter(f"{text}: longer than time itself") from None
