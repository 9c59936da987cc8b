"""`penstock consumers`: positions and lag of category consumers and queue sessions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated

import msgspec
import typer

from penstock.admin.readers import ConsumerStatus, SessionStatus
from penstock.cli.printing import (
    console,
    note,
    print_json,
    printable,
    shown_age,
    table,
)
from penstock.cli.target import Folder, Json, Url, open_existing, settings_for


def consumers(
    count_up_to: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="Stop counting waiting messages at this number."),
    ] = 10_000,
    json: Json = False,
    url: Url = None,
    folder: Folder = None,
) -> None:
    """List consumers with a stored position, and sessions of queues.

    `behind` is the number of messages of the category after the position, or of records of the
    queue from the next offset. `for` is how long the first of them has been waiting.
    """
    with open_existing(settings_for(url, folder)) as store:
        found = store.admin.consumers(count_up_to)
        sessions = store.admin.sessions(count_up_to)
    if json:
        readers: list[ConsumerStatus | SessionStatus] = [*found, *sessions]
        for one in readers:
            print_json(msgspec.to_builtins(one) | {"seconds_behind": one.seconds_behind})
        return
    _print_consumers(found, count_up_to)
    if sessions:
        console().print()
        _print_sessions(sessions, count_up_to)


def _print_consumers(found: Sequence[ConsumerStatus], count_up_to: int) -> None:
    names = dict.fromkeys(("category", "consumer", "kept_in"), "left")
    numbers = dict.fromkeys(("position", "head", "behind", "for", "updated"), "right")
    listed = table(**names, **numbers)
    for one in found:
        listed.add_row(
            printable(one.category),
            printable(one.consumer_id),
            one.kept_in,
            "?" if one.position is None else str(one.position),
            str(one.head),
            *_backlog(one, count_up_to),
        )
    console().print(listed)
    if any(one.position is None for one in found):
        note("? is an invalid position: that consumer cannot start; set one with `penstock seek`")


def _print_sessions(found: Sequence[SessionStatus], count_up_to: int) -> None:
    numbers = dict.fromkeys(("next_offset", "tail", "behind", "for", "updated"), "right")
    listed = table(queue="left", consumer="left", **numbers)
    for one in found:
        listed.add_row(
            printable(one.queue),
            printable(one.consumer_id),
            str(one.next_offset),
            str(one.tail),
            *_backlog(one, count_up_to),
        )
    console().print(listed)


def _backlog(one: ConsumerStatus | SessionStatus, count_up_to: int) -> tuple[str, str, str]:
    return (
        f"{one.behind}+" if one.behind == count_up_to else str(one.behind),
        shown_age(timedelta(seconds=one.seconds_behind)) if one.behind else "-",
        f"{shown_age(one.as_of - one.updated_at)} ago",
    )
