"""`penstock snapshots`: list and remove the snapshots of deciders."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from penstock.cli.printing import counted, note, print_list
from penstock.cli.target import Json, Yes, command_group, confirm, duration, open_existing
from penstock.errors import ValidationError


def overview(json: Json = False) -> None:
    """List the deciders that have snapshots, by version: of how many boundaries, and how old."""
    with open_existing() as store:
        found = store.admin.snapshots()
    print_list(
        found,
        json,
        "decider version >boundaries >bytes oldest newest",
        lambda one: (
            one.decider,
            one.version,
            one.boundaries,
            one.bytes,
            one.oldest,
            one.newest,
        ),
    )


def remove(
    decider: Annotated[str, typer.Argument(help="The decider's name.")],
    version: Annotated[
        str | None, typer.Option(metavar="VERSION", help="Only those of this version.")
    ] = None,
    not_saved_for: Annotated[
        timedelta | None,
        typer.Option(
            parser=duration,
            metavar="DURATION",
            help="Only those that were last saved before this: 90d, 12h, 30min.",
        ),
    ] = None,
    yes: Yes = False,
) -> None:
    """Remove the snapshots of a decider, such as those of a version that is no longer in use.

    A decision without a snapshot reads its whole boundary.
    """
    with open_existing() as store:
        found = [
            one
            for one in store.admin.snapshots()
            if one.decider == decider and version in (None, one.version)
        ]
        if not found:
            which = "DECIDER" if version is None else "--version"
            raise ValidationError(which, version or decider, "one that has snapshots")
        boundaries = counted(sum(one.boundaries for one in found), "snapshot")
        some = "" if not_saved_for is None else "some of "
        confirm(f"remove {some}{boundaries} of {decider}?", yes)
        removed = store.admin.remove_snapshots(decider, version, not_saved_for=not_saved_for)
    note(f"{counted(removed, 'snapshot')} removed")


snapshots = command_group(
    "snapshots", "List and remove the snapshots of deciders.", {"remove": remove}, overview
)
