"""`penstock retain`: remove the oldest messages."""

from __future__ import annotations

import shlex
from datetime import datetime, timedelta
from typing import Annotated

import typer
from rich.progress import SpinnerColumn, TimeElapsedColumn

from penstock.admin import SlowestReader
from penstock.cli.printing import TerminalProgress, counted, note, shown_time
from penstock.cli.target import duration, open_existing
from penstock.log.overview import server_time
from penstock.loops.durations import shown_age


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
    archive: Annotated[
        bool,
        typer.Option(
            "--archive", help="Move the messages of a category to the archive, and delete nothing."
        ),
    ] = False,
) -> None:
    """Remove the oldest messages of a stream, a category or a queue.

    Keeps messages that a reader has not read, and the last message of each stream; a stream that is
    named after its only message is removed whole. Requires the role that owns the schema.
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
            archive=archive,
            progress=lambda removed: bar.update(task, completed=removed),
        )
        now = store.run(server_time())
    done = "moved {} to the archive" if archive else "removed {}"
    print(done.format(counted(retained.removed, "message")))
    if retained.held_back_by is not None:
        note(_held_back(retained.held_back_by, now))


def _held_back(by: SlowestReader, now: datetime) -> str:
    """Return who holds the following messages back, since when, and the command that mends it."""
    who = f"{by.kind} {by.name}" + (f" of {by.reads}" if by.reads else "")
    state = f" ({by.state})" if by.state else ""
    since = f", written {_moment(by.waiting_since, now)}" if by.waiting_since else ""
    stored = _moment(by.updated_at, now) if by.updated_at else "at an unknown time"
    return (
        f"held back by {who}{state}: it has not read position {by.needs}{since}, and last stored "
        f"its position {stored}; {_remedy(by)}; --ignore-consumers removes the messages anyway"
    )


def _moment(time: datetime, now: datetime) -> str:
    return f"{shown_time(time)}, {shown_age(now - time)} ago"


def _remedy(by: SlowestReader) -> str:
    if by.kind == "processor":
        pipeline, _, processor = by.name.rpartition(".")
        return f"if it is gone for good: {_command('pipelines', 'retire', pipeline, processor)}"
    if by.kind != "group":
        return f"if it is gone for good: {_command('consumers', 'remove', by.reads or '', by.name)}"
    go_on = {"stopped": "start", "parked": "retry"}.get(by.state or "")
    mended = f"to let it go on: {_command('groups', go_on, by.name)}; " if go_on else ""
    return f"{mended}if it is gone for good: {_command('groups', 'remove', by.name)}"


def _command(*words: str) -> str:
    return shlex.join(["penstock", *words])
