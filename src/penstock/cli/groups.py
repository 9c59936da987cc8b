"""`penstock groups`: list, stop, start, reset and retry partitioned consumer groups."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from penstock.admin import GroupStatus, ParkedPartition
from penstock.cli.printing import console, note, print_json, printable, shown_age, shown_time, table
from penstock.cli.target import Folder, Json, Url, open_existing, settings_for
from penstock.errors import ValidationError
from penstock.log.overview import server_time

groups = typer.Typer(name="groups", help="List and control partitioned consumer groups.")

GroupId = Annotated[str, typer.Argument(metavar="GROUP", help="The group.", show_default=False)]


@groups.callback(invoke_without_command=True)
def overview(
    context: typer.Context, json: Json = False, url: Url = None, folder: Folder = None
) -> None:
    """List consumer groups and their parked partitions.

    A partition is pending while it has unacknowledged messages. `waiting` is the age of the oldest
    of them.
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
    """Stop giving out claims. Claims in flight can finish."""
    with open_existing(settings_for(url, folder)) as store:
        store.groups.stop(group_id)
    note(f"{printable(group_id)} stopped")


@groups.command("start")
def start(group_id: GroupId, url: Url = None, folder: Folder = None) -> None:
    """Start giving out claims again."""
    with open_existing(settings_for(url, folder)) as store:
        store.groups.start(group_id)
    note(f"{printable(group_id)} started")


@groups.command("reset")
def reset(group_id: GroupId, url: Url = None, folder: Folder = None) -> None:
    """Delete all offsets, so that every partition starts again and claims become stale."""
    with open_existing(settings_for(url, folder)) as store:
        store.groups.reset(group_id)
    note(f"{printable(group_id)} reset to the beginning of the log")


@groups.command("retry")
def retry(
    group_id: GroupId,
    partition_key: Annotated[
        str | None,
        typer.Argument(metavar="PARTITION", help="The partition; all if not given."),
    ] = None,
    url: Url = None,
    folder: Folder = None,
) -> None:
    """Resume parked partitions, at the message that failed."""
    with open_existing(settings_for(url, folder)) as store:
        resumed = store.groups.resume(group_id, partition_key)
    if partition_key is not None and not resumed:
        raise ValidationError("PARTITION", partition_key, f"a parked partition of {group_id}")
    note(f"{resumed} {'partition' if resumed == 1 else 'partitions'} resumed")


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
