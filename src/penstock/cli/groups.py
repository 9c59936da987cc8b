"""`penstock groups`: list, stop, start, reset, retry and remove partitioned consumer groups."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from penstock import AsyncStore
from penstock.cli.printing import console, counted, note, print_json, print_table
from penstock.cli.target import Json, Yes, ask, command_group, confirm, open_existing
from penstock.console.data import groups as group_data
from penstock.console.data.groups import Group
from penstock.console.data.pages import MOST
from penstock.console.data.partitions import Partition, partitions
from penstock.errors import ValidationError

GroupId = Annotated[str, typer.Argument(metavar="GROUP", help="The group.")]


def overview(json: Json = False) -> None:
    """List consumer groups and their parked partitions.

    A partition is pending while it has unacknowledged messages. `waiting` is the age of the oldest
    of them. Numbers are counted up to 1,000 (`1,000+`), and of each group the oldest 200 parked
    partitions are listed.
    """
    found, parked = ask(_look)
    if json:
        print_json({"groups": found, "parked": parked})
        return
    print_table(
        "group status partitioned_by >partitions >pending >claimed >parked >waiting",
        (
            (
                one.group_id,
                one.status,
                ", ".join(one.partition_by),
                one.partitions,
                one.pending,
                one.claimed,
                one.parked,
                timedelta(seconds=one.seconds_behind) if one.seconds_behind else None,
            )
            for one in found
        ),
    )
    if parked:
        console().print()
        print_table(
            "group parked_partition >attempts error since",
            (
                (one.group_id, one.partition_key, one.attempts, one.error, one.parked_at)
                for one in parked
            ),
        )


async def _look(store: AsyncStore) -> tuple[list[Group], list[Partition]]:
    """Return the groups, and their parked partitions."""
    page = await group_data.groups(store)
    found = [*page.items]
    while page.next is not None:
        page = await group_data.groups(store, page.next)
        found += page.items
    pages = [await partitions(store, one.group_id, "parked", limit=MOST) for one in found]
    return found, [one for page in pages for one in page.items]


def stop(group_id: GroupId) -> None:
    """Stop giving out claims. Claims in flight can finish."""
    with open_existing() as store:
        store.groups.stop(group_id)
    note(f"{group_id} stopped")


def start(group_id: GroupId) -> None:
    """Start giving out claims again."""
    with open_existing() as store:
        store.groups.start(group_id)
    note(f"{group_id} started")


def reset(group_id: GroupId) -> None:
    """Delete all offsets, so that every partition starts again and claims become stale."""
    with open_existing() as store:
        store.groups.reset(group_id)
    note(f"{group_id} reset to the beginning of the log")


def retry(
    group_id: GroupId,
    partition_key: Annotated[
        str | None, typer.Argument(metavar="PARTITION", help="The partition; all if not given.")
    ] = None,
) -> None:
    """Resume parked partitions, at the message that failed."""
    with open_existing() as store:
        resumed = store.groups.resume(group_id, partition_key)
    if partition_key is not None and not resumed:
        raise ValidationError("PARTITION", partition_key, f"a parked partition of {group_id}")
    note(f"{counted(resumed, 'partition')} resumed")


def remove(group_id: GroupId, yes: Yes = False) -> None:
    """Remove a group that is gone for good.

    Retention no longer keeps what it has not handled. Deletes its partitions with their offsets.
    Workers that are running fail at their next claim or acknowledgement.
    """
    one = ask(lambda store: group_data.group(store, group_id))
    number = f"{one.partitions} partition{'s' * (one.partitions.value != 1)}"
    unhandled = f"{one.pending} with unhandled messages, {one.claimed} claimed now"
    confirm(f"remove {group_id}, with {number} ({unhandled})?", yes)
    with open_existing() as store:
        store.groups.remove(group_id)
    note(f"{group_id} removed")


groups = command_group(
    "groups",
    "List and control partitioned consumer groups.",
    {"stop": stop, "start": start, "reset": reset, "retry": retry, "remove": remove},
    overview,
)
