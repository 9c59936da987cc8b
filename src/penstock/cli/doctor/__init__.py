"""`penstock doctor`: checks of the machine, the server and the database.

Each check is a function that returns a finding. A problem prevents Penstock from working or breaks
one of its promises. A warning does not.
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
    """Check the machine, the server and the database, and suggest fixes.

    The exit code is 1 if there is a problem, and 0 if there are only warnings.
    """
    settings = settings_for(url, folder)
    with console(stderr=True).status("checking"):
        findings = [*_machine_checks(settings), *_server_checks(settings)]
    _print(findings)
    raise typer.Exit(any(one.level is Level.PROBLEM for one in findings))


def _machine_checks(settings: Settings) -> Iterator[Finding]:
    yield machine.python()
    yield machine.psycopg_and_libpq()
    yield machine.embedded_postgresql(settings)
    yield machine.spark()


def _server_checks(settings: Settings) -> Iterator[Finding]:
    if not has_database(settings):
        yield Finding(
            "server",
            Level.WARNING,
            f"no database in {settings.folder}",
            "give --url or PENSTOCK_URL, or create a database with `penstock init`",
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
            "check that it is running and accepts the login; check --url or PENSTOCK_URL",
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
        return "No problems found."
    return f"{problems} problem{'s' * (problems != 1)}, {warnings} warning{'s' * (warnings != 1)}."
