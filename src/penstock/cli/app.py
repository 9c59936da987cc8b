"""The list of commands, and the entry point of the process."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

import penstock
from penstock.cli.archive import archive
from penstock.cli.console import console
from penstock.cli.consumers import consumers, parked
from penstock.cli.dead_letters import dead_letters
from penstock.cli.demo import demo
from penstock.cli.doctor import doctor
from penstock.cli.errors import ErrorReporting
from penstock.cli.groups import groups
from penstock.cli.init import init
from penstock.cli.lake import lake
from penstock.cli.outbox import joins, outbox
from penstock.cli.pipelines import graph, pipelines
from penstock.cli.pipelines import run as run_pipeline
from penstock.cli.read import categories, read, streams
from penstock.cli.retain import retain
from penstock.cli.search import search
from penstock.cli.seek import replay, seek
from penstock.cli.snapshots import snapshots
from penstock.cli.status import release_writer, status, version
from penstock.cli.target import Folder, Url, on_database, select_database
from penstock.cli.trace import trace
from penstock.cli.write import write

app = typer.Typer(
    name="penstock",
    cls=ErrorReporting,
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # they would show the values of variables, including passwords
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"penstock {penstock.__version__}")
        raise typer.Exit


@app.callback()
def main(
    url: Url = None,
    folder: Folder = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Show the version of the package.",
            callback=_show_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Manage a message log in PostgreSQL: install it, write to it, read it, and monitor it.

    --url and --folder can be given before or after the command.
    """
    select_database(url, folder)


#: in the order of the help
PANELS: dict[str, list[Callable[..., None] | typer.Typer]] = {
    "Set up": [init, status, doctor, console, release_writer, version, demo],
    "Messages": [write, read, search, trace, streams, categories, retain, archive, snapshots],
    "Consumers": [consumers, seek, replay, parked, groups],
    "Outbox": [outbox, joins, dead_letters],
    "Pipelines": [run_pipeline, graph, pipelines, lake],
}
for panel, commands in PANELS.items():
    for command in commands:
        if isinstance(command, typer.Typer):
            app.add_typer(command, rich_help_panel=panel)
        else:
            local = command in (demo, graph)
            app.command(rich_help_panel=panel)(command if local else on_database(command))


def run() -> None:
    """Run the command and exit."""
    _replace_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _interrupt)
    app()


def _replace_closed_streams() -> None:
    """Replace standard streams that were closed when the process started."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - open until exit


def _interrupt(number: int, _: FrameType | None) -> None:
    """Stop as Ctrl-C does: close connections and release the embedded server."""
    raise KeyboardInterrupt(number)
