"""`penstock groups`: how partitioned consumer groups stand, and how to get them going again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from penstock import GroupStatus, ParkedPartition
from penstock.cli.overview import Json
from penstock.cli.printing import console, note, print_json, printable, shown_age, shown_time, table
from penstock.cli.target import Folder, Url, open_existing, settings_for
from penstock.errors import ValidationError
from penstock.log.overview import server_time

groups = typer.Typer(name="groups", help="See to partitioned consumer groups.")

GroupId = Annotated[str, typer.Argument(metavar="GROUP", help="The group.", show_default=False)]


@groups.callback(invoke_without_command=True)
def overview(
    context: typer.Context, json: Json = False, url: Url = None, folder: Folder = None
) -> None:
    """List the groups: their partitions, what is pending, and what is parked with its error.

    A partition is pending while it has messages that nobody has acknowledged; waiting is for how
    long the oldest of them is in the log.
    """
    if context.invoked_subcommand:
        return
    with open_existing(settings_for(url, folder)) as store:
        found = store.groups.list()
        parked = [one for group in found for one in store.groups.parked(group.group_id)]
        now = store.run(server_time())
    if json:
        print_json({"groups": found, "parked": parked})
        return
    _print_groups(found, now)
    if parked:
        console().print()
        _print_parked(parked)


@groups.command("stop")
def stop(group_id: GroupId, url: Url = None, folder: Folder = None) -> None:
    """Give out no more claims; those in flight may finish."""
    with open_existing(settings_for(url, folder)) as store:
        store.groups.stop(group_id)
    note(f"{printable(group_id)} is stopped")


@groups.command("start")
def start(group_id: GroupId, url: Url = None, folder: Folder = None) -> None:
    """Give out claims again."""
    with open_existing(settings_for(url, folder)) as store:
        store.groups.start(group_id)
    note(f"{printable(group_id)} is active")


@groups.command("reset")
def reset(group_id: GroupId, url: Url = None, folder: Folder = None) -> None:
    """Forget all offsets: every partition starts again, and claims in flight become stale."""
    with open_existing(settings_for(url, folder)) as store:
        store.groups.reset(group_id)
    note(f"{printable(group_id)} starts again from the beginning of the log")


@groups.command("retry")
def retry(
    group_id: GroupId,
    partition_key: Annotated[
        str | None,
        typer.Argument(metavar="PARTITION", help="Only this one; all if not given."),
    ] = None,
    url: Url = None,
    folder: Folder = None,
) -> None:
    """Let parked partitions go on, from the message that they failed on."""
    with open_existing(settings_for(url, folder)) as store:
        resumed = store.groups.resume(group_id, partition_key)
    if partition_key is not None and not resumed:
        raise ValidationError("PARTITION", partition_key, f"a parked partition of {group_id}")
    note(f"{resumed} {'partition goes' if resumed == 1 else 'partitions go'} on")


def _print_groups(found: Sequence[GroupStatus], now: datetime) -> None:
    listed = table(
        group="left",
        status="left",
        partitioned_by="left",
        partitions="right",
        pending="right",
        claimed="right",
        parked="right",
        waiting="right",
    )
    for one in found:
        listed.add_row(
            printable(one.group_id),
            one.status,
            printable(", ".join(one.partition_by or [])),
            str(one.partitions),
            str(one.pending),
            str(one.claimed),
            str(one.parked),
            shown_age(now - one.oldest_pending) if one.oldest_pending else "",
        )
    console().print(listed)


def _print_parked(parked: list[ParkedPartition]) -> None:
    listed = table(group="left", parked_partition="left", attempts="right", error="left")
    listed.add_column("since")
    for one in parked:
        listed.add_row(
            printable(one.group_id),
            printable(one.partition_key),
            str(one.attempts),
            printable(one.error or ""),
            shown_time(one.parked_at.astimezone(UTC)),
        )
    console().print(listed)
