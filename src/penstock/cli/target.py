"""Which database a command is about: `--url`, `--folder`, PENSTOCK_URL, or the embedded server.

Only `init` and `write` make an embedded database where there is none. The others say so instead: a
command given in the wrong folder must not answer with an empty log.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
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
        help="The database, postgresql://…; PENSTOCK_URL if not given.",
        show_default=False,
    ),
]
Folder = Annotated[
    str | None,  # not a path: an empty one would be this very folder
    typer.Option(
        metavar="FOLDER",
        help="The embedded server's folder; .penstock if there is no URL either.",
        show_default=False,
    ),
]


#: --url and --folder as they were given before the command
_before: ContextVar[tuple[str | None, str | None]] = ContextVar("before", default=(None, None))


def name_before_command(url: str | None, folder: str | None) -> None:
    """Remember the database that was named before the command, for a command that names none."""
    _before.set((url, folder))


def settings_for(url: str | None, folder: str | None) -> Settings:
    """Return the settings; what the command was given wins over the environment."""
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
    """Return where the database is, for people: never a password."""
    if settings.embedded:
        return f"the embedded server in {settings.folder}"
    return settings.where()


def has_database(settings: Settings) -> bool:
    """Whether there may be a database: a server's, or one made in the embedded server's folder."""
    return not settings.embedded or (settings.folder / "data").exists()


def open_existing(settings: Settings) -> penstock.Store:
    """Return a store on a database that is there already."""
    if not has_database(settings):
        raise NotInstalled(
            f"there is no database in {settings.folder}: name a server with --url or PENSTOCK_URL, "
            "another folder with --folder, or make one here with `penstock init`"
        )
    return penstock.connect(settings)


@contextmanager
def bare_connection(settings: Settings) -> Iterator[psycopg.Connection[Any]]:
    """Lend a connection to whatever is there, a message store or not."""
    if not settings.embedded:
        with pool.connect(settings) as connection:
            yield connection
        return
    with (
        start(settings.folder) as server,
        pool.connect(replace(settings, database_url=server.url)) as connection,
    ):
        yield connection
