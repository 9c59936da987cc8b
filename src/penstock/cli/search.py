"""`penstock search`: find messages by id, correlation, or type and attributes."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.printing import note, print_json, print_table
from penstock.cli.target import Json, ask
from penstock.console.data import search as data
from penstock.console.data.pages import MOST


def search(
    type: Annotated[str | None, typer.Option(metavar="TYPE", help="Messages of this type.")] = None,
    attribute: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="With this attribute; can be repeated."),
    ] = None,
    correlation: Annotated[
        str | None, typer.Option(metavar="ID", help="Messages with this correlation id.")
    ] = None,
    id: Annotated[str | None, typer.Option(metavar="ID", help="The message with this id.")] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=MOST, metavar="N", help="The maximum number.")
    ] = 50,
    after: Annotated[
        str | None, typer.Option(metavar="NEXT", help="Continue there, as the last search says.")
    ] = None,
    json: Json = False,
) -> None:
    """Find messages by type and attributes, newest first; by correlation, oldest first; or by id.

    Ids and declared attributes are indexed. For anything else 10,000 messages are looked at. It
    says what it has looked at, and how to continue.
    """
    attributes = data.as_attributes(attribute or ())
    wanted = {"type": type, "correlation": correlation, "id": id}
    found = ask(
        lambda store: data.search(store, **wanted, attributes=attributes, after=after, limit=limit)
    )
    if json:
        print_json(found)
        return
    print_table(
        ">global_position time type stream id",
        ((one.global_position, one.time, one.type, one.stream_name, one.id) for one in found.items),
    )
    note(f"looked at {found.looked_at}")
    if found.next is not None:
        note(f"to continue: --after {found.next}")
