"""`penstock doctor`: what may be wrong with this machine, this server, this database.

Each check is a function that returns a finding. A problem keeps Penstock from working, or breaks
one of its promises; a warning is good to know.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import typer
from rich.table import Table
from rich.text import Text

from penstock.cli.doctor import machine, server
from penstock.cli.doctor.finding import Finding, Level
from penstock.cli.printing import console, printable
from penstock.cli.target import Folder, Url, bare_connection, has_database, place, settings_for
from penstock.errors import PenstockError, first_line
from penstock.settings import Settings, redact


def doctor(url: Url = None, folder: Folder = None) -> None:
    """Look for problems, and say what to do about them.

    Checks this machine, the server and the database.
    The exit code is 1 if there is a problem; warnings do not change it.
    """
    settings = settings_for(url, folder)
    with console(stderr=True).status("looking"):
        findings = [*_on_the_machine(settings), *_on_the_server(settings)]
    _print(findings)
    raise typer.Exit(any(one.level is Level.PROBLEM for one in findings))


def _on_the_machine(settings: Settings) -> Iterator[Finding]:
    yield machine.python()
    yield machine.psycopg_and_libpq()
    yield machine.embedded_postgresql(settings)
    yield machine.spark()


def _on_the_server(settings: Settings) -> Iterator[Finding]:
    if not has_database(settings):
        yield Finding(
            "server",
            Level.WARNING,
            f"there is no database in {settings.folder}",
            "name a server with --url or PENSTOCK_URL, or make a database with `penstock init`",
        )
        return
    try:
        with bare_connection(settings) as connection:
            yield from server.checks(connection, place(settings))
    except (PenstockError, psycopg.Error) as error:
        yield Finding(
            "server",
            Level.PROBLEM,
            redact(first_line(error)),
            "see that it runs and lets you in, and that --url or PENSTOCK_URL is right",
        )


def _print(findings: list[Finding]) -> None:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for one in findings:
        found = Text(printable(one.found))
        if one.advice:
            found.append(f"\n{printable(one.advice)}", style="bold")
        table.add_row(Text(one.level.value, style=one.level.style), one.check, found)
    out = console()
    out.print(table)
    out.print(Text(_summary(findings)))


def _summary(findings: list[Finding]) -> str:
    levels = [one.level for one in findings]
    problems, warnings = levels.count(Level.PROBLEM), levels.count(Level.WARNING)
    if not problems and not warnings:
        return "All is well."
    return f"{problems} problem{'s' * (problems != 1)}, {warnings} warning{'s' * (warnings != 1)}."
