"""`penstock read`: a stream, a category or the whole log; once, or for as long as you watch."""

from __future__ import annotations

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
)
from penstock.cli.target import Folder, Url, open_existing, settings_for
from penstock.message import names

_POLLING_SECONDS = 0.1


@dataclass(frozen=True)
class Wanted:
    """What is to be read."""

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
        """Whether one stream is to be read, and not a category or the whole log."""
        return not names.is_category(self.target)

    @property
    def page(self) -> int | None:
        """How many messages to fetch at a time; None for the store's own choice."""
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
            help="Begin here: a stream's position, or a category's global position; "
            "end is after the last message.",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, max=sys.maxsize, metavar="N", help="At most so many messages."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on as messages are written, until Ctrl-C.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help="Only this type; may be given again."),
    ] = None,
    correlation: Annotated[
        str | None,
        typer.Option(metavar="CATEGORY", help="Only messages that answer one of this category."),
    ] = None,
    member: Annotated[
        int | None, typer.Option(metavar="N", help="Only this member's share of a group, from 0.")
    ] = None,
    size: Annotated[int | None, typer.Option(metavar="N", help="The group's size.")] = None,
    url: Url = None,
    folder: Folder = None,
) -> None:
    """Read a stream, a category or the whole log, in order.

    Complete: a message that is still being committed holds back those after it.
    """
    chosen = frozenset(types or ())
    wanted = Wanted(target, position, limit, follow, chosen, correlation, member, size)
    _check(wanted)
    with open_existing(settings_for(url, folder)) as store:
        show = print_json if json else _printer(console())
        count = _show(wanted, _read(store, wanted), show)
    if not count and not json:
        note(f"no messages in {target} from there on" if position else f"no messages in {target}")


def _check(wanted: Wanted) -> None:
    if not wanted.target:
        raise typer.BadParameter("TARGET is empty: a shell needs single quotes around '$all'")
    if wanted.position not in (None, "end") and not (wanted.position or "").isdecimal():
        raise typer.BadParameter("--position must be a whole number of 0 or more, or end")
    filters = (wanted.correlation, wanted.member, wanted.size)
    if wanted.is_stream and any(one is not None for one in filters):
        raise typer.BadParameter(
            f"--correlation, --member and --size are for categories; {wanted.target} is a stream"
        )


def _show(
    wanted: Wanted, messages: Iterator[RecordedMessage], show: Callable[[RecordedMessage], None]
) -> int:
    """Show the messages that are wanted, and return how many there were."""
    chosen = (one for one in messages if not wanted.types or one.type in wanted.types)
    count = 0
    for message in islice(chosen, wanted.limit):
        show(message)
        count += 1
        if wanted.follow:
            sys.stdout.flush()
    return count


def _read(store: Store, wanted: Wanted) -> Iterator[RecordedMessage]:
    position = _first_position(store, wanted)
    if wanted.is_stream:
        if wanted.follow:
            return _follow_stream(store, wanted.target, position, wanted.page)
        return store.read_stream(wanted.target, position, wanted.page)
    go_through = store.follow_category if wanted.follow else store.read_category
    return go_through(
        wanted.target, position, wanted.page, wanted.correlation, wanted.member, wanted.size
    )


def _first_position(store: Store, wanted: Wanted) -> int:
    if wanted.position == "end":
        if wanted.is_stream:
            version = store.stream_version(wanted.target)
            return 0 if version is None else version + 1
        return store.category_head(wanted.target) + 1
    if wanted.position is None:
        return 0 if wanted.is_stream else 1
    return int(wanted.position)


def _follow_stream(
    store: Store, stream_name: str, position: int, page: int | None
) -> Iterator[RecordedMessage]:
    shown = 0  # once a message was shown, each look begins with it
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
