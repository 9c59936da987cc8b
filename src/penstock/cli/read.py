"""`penstock read`, `penstock streams` and `penstock categories`."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator
from itertools import islice
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from penstock import RecordedMessage, Store
from penstock.cli.printing import (
    INDENT,
    console,
    note,
    print_json,
    print_list,
    print_object,
    print_wrapped,
    printable,
    shown_time,
)
from penstock.cli.target import Json, open_existing
from penstock.message import names

_POLLING_SECONDS = 0.1


def read(
    target: Annotated[
        str,
        typer.Argument(
            help="A stream (account-123), a category (account), or '$all' in single quotes."
        ),
    ],
    position: Annotated[
        str | None,
        typer.Option(
            metavar="N|end",
            help="Start at this position of a stream, or global position of a category; "
            "`end` is after the last message.",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, max=sys.maxsize, metavar="N", help="The maximum number of messages."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for new messages, until Ctrl-C.")
    ] = False,
    json: Json = False,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help="Only this type; can be repeated."),
    ] = None,
    correlation: Annotated[
        str | None,
        typer.Option(metavar="CATEGORY", help="Only replies to messages of this category."),
    ] = None,
    member: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Only the streams of this member of a consumer group, from 0."
        ),
    ] = None,
    size: Annotated[
        int | None, typer.Option(metavar="N", help="The size of the consumer group.")
    ] = None,
) -> None:
    """Read a stream, a category or the whole log, in order.

    Reads are complete: messages after an open transaction are not shown until it ends.
    """
    is_stream = not names.is_category(target)
    if not target:
        raise typer.BadParameter("TARGET is empty: put single quotes around '$all' in a shell")
    if position is not None and position != "end" and not position.isdecimal():
        raise typer.BadParameter("--position must be an integer of 0 or more, or end")
    if is_stream and (correlation, member, size) != (None, None, None):
        raise typer.BadParameter(
            f"--correlation, --member and --size are for categories; {target} is a stream"
        )
    page = None if limit is None or limit > 1000 or types else limit  # None: the store's default
    with open_existing() as store:
        first = _first_position(store, target, position, is_stream)
        if not is_stream:
            read_category = store.follow_category if follow else store.read_category
            messages = read_category(target, first, page, correlation, member, size)
        elif follow:
            messages = _follow_stream(store, target, first, page)
        else:
            messages = store.read_stream(target, first, page)
        chosen = (one for one in messages if not types or one.type in types)
        out, is_empty = console(), True
        for message in islice(chosen, limit):
            is_empty = False
            if json:
                print_json(message)
            else:
                _print_message(out, message)
            if follow:
                sys.stdout.flush()
    if is_empty and not json:
        note(f"no messages in {target} from {position}" if position else f"no messages in {target}")


def _first_position(store: Store, target: str, position: str | None, is_stream: bool) -> int:
    if position == "end" and is_stream:
        version = store.stream_version(target)
        return 0 if version is None else version + 1
    if position == "end":
        return store.category_head(target) + 1
    if position is None:
        return 0 if is_stream else 1
    return int(position)


def _follow_stream(
    store: Store, stream_name: str, position: int, page: int | None
) -> Iterator[RecordedMessage]:
    shown = 0  # 1 after the first message: each poll then starts with the last one shown
    while True:
        found = False
        for message in store.read_stream(stream_name, position - shown, page):
            found = True
            if message.position >= position:
                yield message
                position, shown = message.position + 1, 1
        if shown and not found:
            position = shown = 0  # the log was truncated
        time.sleep(_POLLING_SECONDS)


def _print_message(out: Console, message: RecordedMessage) -> None:
    header = Text.assemble(
        (str(message.global_position), "cyan"),
        "  ",
        (printable(message.type), "bold"),
        "  ",
        (f"{printable(message.stream_name)} #{message.position}", "green"),
        "  ",
        (shown_time(message.time), "dim"),
    )
    print_wrapped(out, header, hanging=INDENT)
    if message.data:
        print_object(out, message.data)
    if message.metadata:
        print_object(out, message.metadata, "metadata ")


def streams(
    category: Annotated[
        str | None, typer.Option(metavar="CATEGORY", help="Only the streams of this category.")
    ] = None,
    after: Annotated[
        str, typer.Option(metavar="STREAM", help="Start after this name.", show_default=False)
    ] = "",
    limit: Annotated[
        int, typer.Option(min=1, metavar="N", help="The maximum number of streams.")
    ] = 100,
    json: Json = False,
) -> None:
    """List streams by name.

    The version of a stream is the position of its last message.
    """
    with open_existing() as store:
        found = store.streams(category, after, limit)
    columns = "stream >version last_written"
    print_list(found, json, columns, lambda one: (one.stream_name, one.version, one.last_written))
    if len(found) == limit and not json:
        note(f"there may be more: --after {shlex.quote(found[-1].stream_name)}")


def categories(json: Json = False) -> None:
    """List all categories.

    The head of a category is the global position of its last message.
    """
    with open_existing() as store:
        found = store.categories()
    columns = "category >head last_written"
    print_list(found, json, columns, lambda one: (one.category, one.head, one.last_written))
