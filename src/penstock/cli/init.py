"""`penstock init`: install or upgrade the message store."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.progress import SpinnerColumn, TimeElapsedColumn
from rich.text import Text

import penstock
from penstock.cli.printing import TerminalProgress, console, print_wrapped, printable
from penstock.cli.target import has_database, place, selected_settings
from penstock.database.edition import Edition
from penstock.database.install import Plan

_NEW = Plan(
    Edition.PENSTOCK,
    needed=True,
    actions=("create a PostgreSQL server in the folder, and install the message store in it",),
)

_WHY = {
    Edition.PENSTOCK: "The functions in message_store are Penstock's. Clients of Message DB 1.3 "
    "work unchanged, and writers to different streams do not wait for each other.",
    Edition.ON_MESSAGE_DB: "The functions in message_store are Message DB's: writers to one "
    "category wait for each other. `penstock init --take-over` replaces them with Penstock's.",
}


def init(
    check: Annotated[
        bool,
        typer.Option("--check", help="List pending changes only; exit code 1 if there are any."),
    ] = False,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over", help="Replace the functions of a genuine Message DB with Penstock's."
        ),
    ] = False,
) -> None:
    """Install or upgrade the message store.

    Safe to repeat and to run while clients are connected. A genuine Message DB keeps its functions
    and messages.
    """
    settings = selected_settings()
    if check and not has_database(settings):
        plan = _NEW
    else:
        columns = SpinnerColumn(), "{task.description}", TimeElapsedColumn()
        with TerminalProgress(*columns) as spinner:
            task = spinner.add_task("")
            plan = penstock.install(
                settings,
                take_over=take_over,
                check=check,
                progress=lambda what: spinner.update(task, description=printable(what)),
            )
    _print(plan, place(settings), check)
    raise typer.Exit(1 if check and plan.needed else 0)


def _print(plan: Plan, where: str, check: bool) -> None:
    out = console()
    if not plan.needed:
        out.print(Text(f"Nothing to do in {printable(where)}: up to date."))
    else:
        out.print(Text(f"{'To do' if check else 'Done'} in {printable(where)}:"))
        for action in plan.actions:
            print_wrapped(out, Text(f"- {action}"), "  ", "    ")
    print_wrapped(out, Text(_WHY[plan.edition], style="dim"))
