"""The commands, and how the process starts."""

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
from penstock.cli.consumers import consumers
from penstock.cli.demo import demo
from penstock.cli.doctor import doctor
from penstock.cli.failing import ClearlyFailing
from penstock.cli.groups import groups
from penstock.cli.init import init
from penstock.cli.joins import joins
from penstock.cli.outbox import outbox
from penstock.cli.overview import categories, streams
from penstock.cli.parked import parked
from penstock.cli.pipelines import graph, pipelines
from penstock.cli.pipelines import run as run_pipeline
from penstock.cli.read import read
from penstock.cli.retain import retain
from penstock.cli.seek import replay, seek
from penstock.cli.status import status
from penstock.cli.target import Folder, Url, name_before_command
from penstock.cli.version import version
from penstock.cli.write import write

app = typer.Typer(
    name="penstock",
    cls=ClearlyFailing,
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # they would show the values of variables, passwords too
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
            "--version", help="Show the package's version.", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None:
    """One message log in PostgreSQL: set it up, write to it, read it, look after it.

    The database may be named before the command or after it.
    """
    name_before_command(url, folder)


#: in the order of the help
PANELS: dict[str, list[Callable[..., None] | typer.Typer]] = {
    "Set up": [init, status, doctor, version, demo],
    "Messages": [write, read, streams, categories, retain],
    "Consumers": [consumers, seek, replay, parked, groups],
    "Outbox": [outbox, joins],
    "Pipelines": [run_pipeline, graph, pipelines],
}
for panel, commands in PANELS.items():
    for command in commands:
        if isinstance(command, typer.Typer):
            app.add_typer(command, rich_help_panel=panel)
        else:
            app.command(rich_help_panel=panel)(command)


def run() -> None:
    """Run the command in this process, which it then ends."""
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
    """Put an empty stream where the process was started with none."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - till the end


def _interrupt(number: int, _: FrameType | None) -> None:
    """End as Ctrl-C does: connections closed, and the embedded server left."""
    raise KeyboardInterrupt(number)
