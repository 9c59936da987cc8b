"""The commands, and how the process starts."""

from __future__ import annotations

import io
import os
import signal
import sys
from pathlib import Path
from types import FrameType

import typer

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
from penstock.cli.version import version
from penstock.cli.write import write

app = typer.Typer(
    name="penstock",
    cls=ClearlyFailing,
    help="One message log in PostgreSQL: set it up, write to it, read it, look after it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # they would show the values of variables, passwords too
)
for command in (
    demo,
    init,
    status,
    write,
    read,
    streams,
    categories,
    consumers,
    seek,
    replay,
    retain,
    graph,
    version,
    doctor,
):
    app.command()(command)
app.command("run")(run_pipeline)
app.add_typer(parked)
app.add_typer(groups)
app.add_typer(outbox)
app.add_typer(joins)
app.add_typer(pipelines)


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
