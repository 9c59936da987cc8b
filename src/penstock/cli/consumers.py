"""`penstock consumers`: who reads what, and how far behind."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import msgspec
import typer

from penstock.cli.overview import Json
from penstock.cli.printing import (
    console,
    note,
    print_json,
    printable,
    shown_age,
    table,
)
from penstock.cli.target import Folder, Url, open_existing, settings_for


def consumers(
    count_up_to: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="Count waiting messages no further than this."),
    ] = 10_000,
    json: Json = False,
    url: Url = None,
    folder: Folder = None,
) -> None:
    """List the consumers that have stored a position.

    A consumer is behind by the messages of its category after its position; the first of them has
    been waiting for as long as is shown.
    """
    with open_existing(settings_for(url, folder)) as store:
        found = store.consumers(count_up_to)
    if json:
        for one in found:
            seconds = {"seconds_behind": one.seconds_behind}
            print_json(msgspec.to_builtins(one) | seconds)
        return
    names = dict.fromkeys(("category", "consumer", "kept_in"), "left")
    numbers = dict.fromkeys(("position", "head", "behind", "for", "updated"), "right")
    listed = table(**names, **numbers)
    for one in found:
        full = one.behind == count_up_to
        listed.add_row(
            printable(one.category),
            printable(one.consumer_id),
            one.kept_in,
            "?" if one.position is None else str(one.position),
            str(one.head),
            f"{one.behind}+" if full else str(one.behind),
            shown_age(timedelta(seconds=one.seconds_behind)) if one.behind else "-",
            f"{shown_age(datetime.now(UTC) - one.updated_at)} ago",
        )
    console().print(listed)
    if any(one.position is None for one in found):
        note("? is no position: that consumer cannot start; `penstock seek` puts it right")
