"""The options that commands share, and the database that they select.

The database is `--url`, `--folder`, PENSTOCK_URL, or the embedded server in `.penstock`. Only
`init` and `write` create an embedded database. Other commands fail if there is none, so that a
command in the wrong folder does not show an empty log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from datetime import timedelta
from functools import update_wrapper
from inspect import Signature, signature
from typing import Annotated, Any, Protocol, TypeVar

import psycopg
import typer

import penstock
from penstock.cli.printing import printable
from penstock.console.data.pages import MOST
from penstock.database import pool
from penstock.database.embedded import start
from penstock.errors import NotInstalled
from penstock.loops.durations import parse_duration
from penstock.settings import Settings

Url = Annotated[
    str | None,
    typer.Option(metavar="URL", help="The database, postgresql://…; default: PENSTOCK_URL."),
]
Folder = Annotated[
    str | None,  # not a Path: an empty string would become the current folder
    typer.Option(
        metavar="FOLDER",
        help="The folder of the embedded server; default without a URL: .penstock.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]

Answer = TypeVar("Answer")
Item = TypeVar("Item", covariant=True)

#: --url and --folder
_selected: ContextVar[tuple[str | None, str | None]] = ContextVar("selected")


def select_database(url: str | None, folder: str | None) -> None:
    """Keep --url and --folder for `selected_settings`."""
    _selected.set((url, folder))


def on_database(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with the options --url and --folder, which win over those before it.

    The command of a group only runs if none of the group's commands is given.
    """

    def run(
        context: typer.Context, url: Url = None, folder: Folder = None, **arguments: object
    ) -> None:
        if url is not None or folder is not None:
            select_database(url, folder)
        if context.invoked_subcommand is None:
            command(**arguments)

    context, url, folder, _ = signature(run, eval_str=True).parameters.values()
    own = signature(command, eval_str=True).parameters.values()
    run.__signature__ = Signature([context, *own, url, folder])  # type: ignore[attr-defined]
    return update_wrapper(run, command)


def command_group(
    name: str,
    help: str,
    commands: Mapping[str, Callable[..., None]],
    overview: Callable[..., None] | None = None,
) -> typer.Typer:
    """Return a group of commands, and what it does without one: `overview`, or show the help."""
    group = typer.Typer(name=name, help=help, no_args_is_help=overview is None)
    if overview is not None:
        group.callback(invoke_without_command=True)(on_database(overview))
    for command_name, command in commands.items():
        group.command(command_name)(on_database(command))
    return group


def confirm(question: str, yes: bool) -> None:
    """Ask before something is removed for good, unless --yes was given; end if the answer is no."""
    if not yes:
        typer.confirm(printable(question), abort=True, err=True)


def selected_settings() -> Settings:
    """Return the settings; options override the environment."""
    url, folder = _selected.get()
    if url is not None and folder is not None:
        raise typer.BadParameter("give --url or --folder, not both")
    if url is not None:
        return Settings.load(url, host=None, port=None, dbname=None)
    if folder is not None:
        return Settings.load(folder=folder, database_url=None, host=None, dbname=None)
    return Settings.load()


def place(settings: Settings) -> str:
    """Return the location of the database for output: never a password."""
    if settings.embedded:
        return f"the embedded server in {settings.folder}"
    return settings.where()


def has_database(settings: Settings) -> bool:
    """Whether a server is named, or the embedded server's folder has a database."""
    return not settings.embedded or (settings.folder / "data").exists()


def existing_settings() -> Settings:
    """Return the settings of a database that exists."""
    settings = selected_settings()
    if not has_database(settings):
        raise NotInstalled(
            f"no database in {settings.folder}: give --url, --folder or PENSTOCK_URL, or create "
            "one with `penstock init`"
        )
    return settings


def open_existing() -> penstock.Store:
    """Return a store on an existing database."""
    return penstock.connect(existing_settings())


def ask(question: Callable[[penstock.AsyncStore], Awaitable[Answer]]) -> Answer:
    """Return what a function of the console's data finds in an existing database."""
    settings = existing_settings()

    async def run() -> Answer:
        async with await penstock.connect_async(settings) as store:
            return await question(store)

    return asyncio.run(run())


class AnyPage(Protocol[Item]):
    """A page of the console's data."""

    @property
    def items(self) -> tuple[Item, ...]:
        """What it lists."""

    @property
    def next(self) -> str | None:
        """Where the next page begins; None: this is the last one."""


async def first_items(
    limit: int, page_of: Callable[[str | None, int], Awaitable[AnyPage[Item]]]
) -> tuple[list[Item], bool]:
    """Return the first items of a list of the console's, page by page, and whether more follow."""
    found: list[Item] = []
    after: str | None = None
    while len(found) < limit:
        page = await page_of(after, min(limit - len(found), MOST))
        found += page.items
        after = page.next
        if after is None:
            break
    return found, after is not None


@contextmanager
def bare_connection(settings: Settings) -> Iterator[psycopg.Connection[Any]]:
    """Connect to the database, with or without a message store."""
    with ExitStack() as stack:
        if settings.embedded:
            server = stack.enter_context(start(settings.folder))
            settings = replace(settings, database_url=server.url)
        yield stack.enter_context(pool.connect(settings))


def duration(text: str) -> timedelta:
    """Parse a duration: a number with a unit, such as 90d, 12h or 30min."""
    try:
        found = parse_duration(text)
    except OverflowError:
        raise typer.BadParameter(f"{text}: too long; the limit is 999,999,999 days") from None
    if found is None:
        raise typer.BadParameter(f"{text}: expected a number with s, min, h, d or w, such as 90d")
    return found
