"""`penstock streams` and `penstock categories`: what is in the log."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from penstock.cli.printing import console, note, print_json, printable, shown_time, table
from penstock.cli.target import Folder, Url, open_existing, settings_for

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]


def streams(
    category: Annotated[
        str | None, typer.Option(metavar="CATEGORY", help="Only the streams of this category.")
    ] = None,
    after: Annotated[
        str, typer.Option(metavar="STREAM", help="Begin after this name.", show_default=False)
    ] = "",
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="At most so many.")] = 100,
    json: Json = False,
    url: Url = None,
    folder: Folder = None,
) -> None:
    """List streams by name.

    The version of a stream is the position of its last message.
    """
    with open_existing(settings_for(url, folder)) as store:
        found = store.streams(category, after, limit)
    if json:
        for one in found:
            print_json(one)
        return
    listed = table(stream="left", version="right", last_written="left")
    for one in found:
        listed.add_row(printable(one.stream_name), str(one.version), shown_time(one.last_written))
    console().print(listed)
    if len(found) == limit:
        note(f"there may be more: --after {shlex.quote(found[-1].stream_name)}")


def categories(json: Json = False, url: Url = None, folder: Folder = None) -> None:
    """List all categories.

    The head of a category is the global position of its last message.
    """
    with open_existing(settings_for(url, folder)) as store:
        found = store.categories()
    if json:
        for one in found:
            print_json(one)
        return
    listed = table(category="left", head="right", last_written="left")
    for one in found:
        listed.add_row(printable(one.category), str(one.head), shown_time(one.last_written))
    console().print(listed)
