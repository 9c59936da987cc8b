"""`penstock read`, `penstock streams` and `penstock categories`."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
    print_object,
    print_wrapped,
    printable,
    shown_time,
    table,
)
from penstock.cli.target import Folder, Json, Url, open_existing, settings_for
from penstock.message import names

_POLLING_SECONDS = 0.1


@dataclass(frozen=True)
class Query:
    """The arguments of `read`."""

    target: str
    position: str | None
    limit: int | None
    follow: bool
    types: frozenset[str]
    correlation: str | None
    member: int | None
    size: int | None

    @property
    def is_stream(self) -> bool:
        """Whether the target is one stream, not a category or the whole log."""
        return not names.is_category(self.target)

    @property
    def page(self) -> int | None:
        """The number of messages per fetch; None for the store's default."""
        if self.limit is None or self.limit > 1000 or self.types:
            return None
        return self.limit


def read(
    target: Annotated[
        str,
        typer.Argument(
            help="A stream (account-123), a category (account), or '$all' in single quotes.",
            show_default=False,
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
    url: Url = None,
    folder: Folder = None,
) -> None:
    """Read a stream, a category or the whole log, in order.

    Reads are complete: messages after an open transaction are not shown until it ends.
    """
    chosen = frozenset(types or ())
    query = Query(target, position, limit, follow, chosen, correlation, member, size)
    _check(query)
    with open_existing(settings_for(url, folder)) as store:
        show = print_json if json else _printer(console())
        count = _show(query, _read(store, query), show)
    if not count and not json:
        note(f"no messages in {target} from {position}" if position else f"no messages in {target}")


def _check(query: Query) -> None:
    if not query.target:
        raise typer.BadParameter("TARGET is empty: put single quotes around '$all' in a shell")
    if query.position not in (None, "end") and not (query.position or "").isdecimal():
        raise typer.BadParameter("--position must be an integer of 0 or more, or end")
    filters = (query.correlation, query.member, query.size)
    if query.is_stream and any(one is not None for one in filters):
        raise typer.BadParameter(
            f"--correlation, --member and --size are for categories; {query.target} is a stream"
        )


def _show(
    query: Query, messages: Iterator[RecordedMessage], show: Callable[[RecordedMessage], None]
) -> int:
    """Show the messages with a selected type, and return their number."""
    chosen = (one for one in messages if not query.types or one.type in query.types)
    count = 0
    for message in islice(chosen, query.limit):
        show(message)
        count += 1
        if query.follow:
            sys.stdout.flush()
    return count


def _read(store: Store, query: Query) -> Iterator[RecordedMessage]:
    position = _first_position(store, query)
    if query.is_stream:
        if query.follow:
            return _follow_stream(store, query.target, position, query.page)
        return store.read_stream(query.target, position, query.page)
    read = store.follow_category if query.follow else store.read_category
    return read(query.target, position, query.page, query.correlation, query.member, query.size)


def _first_position(store: Store, query: Query) -> int:
    if query.position == "end":
        if query.is_stream:
            version = store.stream_version(query.target)
            return 0 if version is None else version + 1
        return store.category_head(query.target) + 1
    if query.position is None:
        return 0 if query.is_stream else 1
    return int(query.position)


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


def _printer(out: Console) -> Callable[[RecordedMessage], None]:
    def print_message(message: RecordedMessage) -> None:
        header = Text.assemble(
            (str(message.global_position), "cyan"),
            "  ",
            (printable(message.type), "bold"),
            "  ",
            (printable(message.stream_name), "green"),
            (f" #{message.position}", "green"),
            "  ",
            (shown_time(message.time), "dim"),
        )
        print_wrapped(out, header, hanging=INDENT)
        if message.data:
            print_object(out, message.data)
        if message.metadata:
            print_object(out, message.metadata, "metadata ")

    return print_message


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
    url: Url = None,
    folder: Folder = None,
) -> None:
    """List streams by name.

    The version of a stream is the position of its last message.
    """
    with open_existing(settings_for(url, folder)) as store:
        found = store.streams(category, after, limit)
    if json:
        for one in found:
            print_json(one)
        return
    listed = table(stream="left", version="right", last_written="left")
    for one in found:
        listed.add_row(printable(one.stream_name), str(one.version), shown_time(one.last_written))
    console().print(listed)
    if len(found) == limit:
        note(f"there may be more: --after {shlex.quote(found[-1].stream_name)}")


def categories(json: Json = False, url: Url = None, folder: Folder = None) -> None:
    """List all categories.

    The head of a category is the global position of its last message.
    """
    with open_existing(settings_for(url, folder)) as store:
        found = store.categories()
    if json:
        for one in found:
            print_json(one)
        return
    listed = table(category="left", head="right", last_written="left")
    for one in found:
        listed.add_row(printable(one.category), str(one.head), shown_time(one.last_written))
    console().print(listed)
