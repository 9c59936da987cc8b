"""`penstock parked`: list, retry and drop messages that a consumer has parked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from penstock.cli.printing import console, note, print_json, printable, shown_time, table
from penstock.cli.seek import Category, ConsumerId
from penstock.cli.target import Folder, Json, Url, open_existing, settings_for

parked = typer.Typer(
    name="parked",
    help="List, retry and drop messages that a consumer has parked.",
    no_args_is_help=True,
)

Positions = Annotated[
    list[int] | None,
    typer.Argument(
        metavar="POSITION...", help="Global positions of parked messages.", show_default=False
    ),
]
All = Annotated[bool, typer.Option("--all", help="All parked messages.")]


@parked.command("list")
def list_parked(
    category: Category,
    consumer_id: ConsumerId,
    json: Json = False,
    url: Url = None,
    folder: Folder = None,
) -> None:
    """List parked messages with their errors."""
    with open_existing(settings_for(url, folder)) as store:
        found = store.admin.parked(category, consumer_id)
    if json:
        for one in found:
            print_json(one)
        return
    listed = table(position="right", type="left", stream="left", attempts="right", error="left")
    listed.add_column("parked")
    for one in found:
        listed.add_row(
            str(one.message.global_position),
            printable(one.message.type),
            printable(one.message.stream_name),
            str(one.attempts) + (", retry requested" if one.retry_requested else ""),
            printable(one.error),
            shown_time(one.parked_at),
        )
    console().print(listed)


@parked.command("retry")
def retry_parked(
    category: Category,
    consumer_id: ConsumerId,
    positions: Positions = None,
    every: All = False,
    url: Url = None,
    folder: Folder = None,
) -> None:
    """Retry parked messages, as soon as the consumer runs and is idle."""
    with open_existing(settings_for(url, folder)) as store:
        waiting = [one.message.global_position for one in store.admin.parked(category, consumer_id)]
        _each(store.admin.retry_parked, category, consumer_id, _chosen(waiting, positions, every))


@parked.command("drop")
def drop_parked(
    category: Category,
    consumer_id: ConsumerId,
    positions: Positions = None,
    every: All = False,
    url: Url = None,
    folder: Folder = None,
) -> None:
    """Drop parked messages, so that the consumer never handles them."""
    with open_existing(settings_for(url, folder)) as store:
        waiting = [one.message.global_position for one in store.admin.parked(category, consumer_id)]
        _each(store.admin.drop_parked, category, consumer_id, _chosen(waiting, positions, every))


def _chosen(waiting: list[int], positions: list[int] | None, every: bool) -> list[int]:
    if bool(positions) == every:
        raise typer.BadParameter("give global positions or --all")
    return waiting if every else positions or []


def _each(
    act: Callable[[str, str, int], None], category: str, consumer_id: str, positions: list[int]
) -> None:
    for position in positions:
        act(category, consumer_id, position)
    what = "will be retried" if act.__name__ == "retry_parked" else "dropped"
    note(f"{len(positions)} {'message' if len(positions) == 1 else 'messages'} {what}")
