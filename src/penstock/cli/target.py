"""The options that commands share, and the database that they select.

The database is `--url`, `--folder`, PENSTOCK_URL, or the embedded server in `.penstock`. Only
`init` and `write` create an embedded database. Other commands fail if there is none, so that a
command in the wrong folder does not show an empty log.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any

import psycopg
import typer

import penstock
from penstock.database import pool
from penstock.database.embedded import start
from penstock.errors import NotInstalled
from penstock.settings import Settings

Url = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="The database, postgresql://…; default: PENSTOCK_URL.",
        show_default=False,
    ),
]
Folder = Annotated[
    str | None,  # not a Path: an empty string would become the current folder
    typer.Option(
        metavar="FOLDER",
        help="The folder of the embedded server; default without a URL: .penstock.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]

_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,6})?) ?(s|min|h|d|w)")
_UNITS = {"s": "seconds", "min": "minutes", "h": "hours", "d": "days", "w": "weeks"}

#: --url and --folder as they were given before the command
_before: ContextVar[tuple[str | None, str | None]] = ContextVar("before", default=(None, None))


def name_before_command(url: str | None, folder: str | None) -> None:
    """Keep the options given before the command, for commands without their own."""
    _before.set((url, folder))


def settings_for(url: str | None, folder: str | None) -> Settings:
    """Return the settings; options override the environment."""
    if url is None and folder is None:
        url, folder = _before.get()
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


def open_existing(settings: Settings) -> penstock.Store:
    """Return a store on an existing database."""
    if not has_database(settings):
        raise NotInstalled(
            f"no database in {settings.folder}: give --url, --folder or PENSTOCK_URL, or create "
            "one with `penstock init`"
        )
    return penstock.connect(settings)


@contextmanager
def bare_connection(settings: Settings) -> Iterator[psycopg.Connection[Any]]:
    """Connect to the database, with or without a message store."""
    if not settings.embedded:
        with pool.connect(settings) as connection:
            yield connection
        return
    with (
        start(settings.folder) as server,
        pool.connect(replace(settings, database_url=server.url)) as connection,
    ):
        yield connection


def duration(text: str) -> timedelta:
    """Parse a duration: a number with a unit, such as 90d, 12h or 30min."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter(f"{text}: expected a number with s, min, h, d or w, such as 90d")
    try:
        return timedelta(**{_UNITS[found[2]]: float(found[1])})
    except OverflowError:
        raise typer.BadParameter(f"{text}: too long; the limit is 999,999,999 days") from None
