"""`penstock groups`: list, stop, start, reset, retry and remove partitioned consumer groups."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.printing import console, counted, note, print_json, print_table
from penstock.cli.target import Json, Yes, command_group, confirm, open_existing
from penstock.errors import GroupNotFound, ValidationError
from penstock.log.overview import server_time

GroupId = Annotated[str, typer.Argument(metavar="GROUP", help="The group.")]


def overview(json: Json = False) -> None:
    """List consumer groups and their parked partitions.

    A partition is pending while it has unacknowledged messages. `waiting` is the age of the oldest
    of them.
    """
    with open_existing() as store:
        found = store.groups.list()
        parked = [one for group in found for one in store.groups.parked(group.group_id)]
        now = store.run(server_time())
    if json:
        print_json({"groups": found, "parked": parked})
        return
    print_table(
        "group status partitioned_by >partitions >pending >claimed >parked >waiting",
        (
            (
                one.group_id,
                one.status,
                ", ".join(one.partition_by or []),
                one.partitions,
                one.pending,
                one.claimed,
                one.parked,
                one.oldest_pending and now - one.oldest_pending,
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
    with open_existing() as store:
        found = [one for one in store.groups.list() if one.group_id == group_id]
        if not found:
            raise GroupNotFound(group_id)
        partitions = counted(found[0].partitions, "partition")
        unhandled = f"{found[0].pending} with unhandled messages, {found[0].claimed} claimed now"
        confirm(f"remove {group_id}, with {partitions} ({unhandled})?", yes)
        store.groups.remove(group_id)
    note(f"{group_id} removed")


groups = command_group(
    "groups",
    "List and control partitioned consumer groups.",
    {"stop": stop, "start": start, "reset": reset, "retry": retry, "remove": remove},
    overview,
)
