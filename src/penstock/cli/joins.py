"""`penstock joins`: list, show and cancel joins."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated

import typer

from penstock import JoinMember, Store
from penstock.cli.printing import (
    console,
    facts,
    note,
    print_json,
    printable,
    shown_time,
    table,
)
from penstock.cli.target import Folder, Json, Url, open_existing, settings_for
from penstock.errors import OutboxMessageNotFound

joins = typer.Typer(name="joins", help="List, show and cancel joins of the outbox.")

JoinIdArgument = Annotated[
    str, typer.Argument(metavar="ID", help="The join's id.", show_default=False)
]


@joins.callback(invoke_without_command=True)
def listing(
    context: typer.Context,
    grouping_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Only joins with this grouping key.")
    ] = None,
    status: Annotated[
        str | None,
        typer.Option(
            metavar="STATUS", help="Only this status: pending, completed, failed or cancelled."
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, metavar="N", help="The maximum number of joins.")
    ] = 100,
    json: Json = False,
    url: Url = None,
    folder: Folder = None,
) -> None:
    """List joins, oldest first, with their completed, failed and expected steps."""
    if context.invoked_subcommand:
        return
    with open_existing(settings_for(url, folder)) as store:
        found = store.joins.list(grouping_key=grouping_key, status=status, limit=limit)
    if json:
        for one in found:
            print_json(one)
        return
    listed = table(
        join="left",
        grouping_key="left",
        status="left",
        completed="right",
        failed="right",
        expected="right",
    )
    for one in found:
        listed.add_row(
            str(one.join_id),
            printable(one.grouping_key or ""),
            one.status,
            str(one.completed_steps),
            str(one.failed_steps),
            str(one.expected_steps),
        )
    console().print(listed)
    if len(found) == limit:
        note("there may be more: raise --limit")


@joins.command()
def show(id: JoinIdArgument, json: Json = False, url: Url = None, folder: Folder = None) -> None:
    """Show a join and its members."""
    with open_existing(settings_for(url, folder)) as store:
        join, members = store.joins.get(id), store.joins.members(id)
        if json:
            print_json({**asdict(join), "members": members})
            return
        listed = table(member="left", status="left", topic="left", error="left")
        for one in members:
            listed.add_row(str(one.message_id), one.status, *_message_of(store, one))
    shown = {
        name.replace("_", " "): shown_time(value)
        if isinstance(value, datetime)
        else printable(str(value))
        for name, value in asdict(join).items()
        if value is not None
    }
    out = console()
    out.print(facts(shown))
    if members:
        out.print()
        out.print(listed)


@joins.command()
def cancel(id: JoinIdArgument, url: Url = None, folder: Folder = None) -> None:
    """Cancel a join, so that it has no follow-up. Its steps continue."""
    with open_existing(settings_for(url, folder)) as store:
        store.joins.cancel(id)
    note(f"join {id} cancelled")


def _message_of(store: Store, member: JoinMember) -> tuple[str, str]:
    """Return topic and error of a member's message, unless it was cleaned up."""
    try:
        message = store.outbox.get(member.message_id)
    except OutboxMessageNotFound:
        return "(cleaned up)", ""
    return printable(message.topic), printable(message.last_error or "")
