"""`penstock dead-letters`: what could not be handled, of every kind, as the console lists it."""

from __future__ import annotations

import getpass
from collections.abc import Iterable
from typing import Annotated

import typer

from penstock.cli.printing import counted, note, print_list
from penstock.cli.target import Json, Yes, ask, command_group, confirm, first_items
from penstock.console.data import dead_letter_actions as actions
from penstock.console.data import dead_letters as data
from penstock.console.data.dead_letter_actions import Outcome
from penstock.console.data.dead_letters import KINDS

Keys = Annotated[list[str], typer.Argument(metavar="KEY...", help="Keys, as the list shows them.")]


def overview(
    kind: Annotated[
        str | None,
        typer.Option(metavar="KIND", help=f"Only this kind: {', '.join(KINDS[:-1])} or error."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="The maximum number.")] = 200,
    json: Json = False,
) -> None:
    """List failed outbox messages, parked messages and partitions, and errors of pipelines."""
    found, more = ask(
        lambda store: first_items(
            limit, lambda after, size: data.dead_letters(store, kind, after, size)
        )
    )
    print_list(
        found,
        json,
        "key type error >attempts failed note",
        lambda one: (one.key, one.type, one.error, one.attempts, one.failed_at, one.note),
    )
    if more and not json:
        note("there are more: raise --limit")


def retry(keys: Keys) -> None:
    """Retry dead letters: make them ready, resume them, or publish them again."""
    _tell("retried", ask(lambda store: actions.retry(store, keys, _who())))


def drop(keys: Keys, yes: Yes = False) -> None:
    """Drop dead letters, so that they are never handled. A parked partition cannot be dropped."""
    confirm(f"drop {counted(len(keys), 'dead letter')} for good?", yes)
    _tell("dropped", ask(lambda store: actions.drop(store, keys, _who())))


def _who() -> str:
    """Return who is recorded with what an errors queue held."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""  # a container without names


def _tell(verb: str, outcomes: Iterable[Outcome]) -> None:
    """Print what was done and what not, and why; fail if something was not."""
    listed = list(outcomes)
    for one in listed:
        if not one.done:
            note(f"{one.key}: {one.reason}")
    done = sum(one.done for one in listed)
    note(f"{done} of {counted(len(listed), 'dead letter')} {verb}")
    if done < len(listed):
        raise typer.Exit(1)


dead_letters = command_group(
    "dead-letters",
    "List, retry and drop what could not be handled, of every kind.",
    {"retry": retry, "drop": drop},
    overview,
)
