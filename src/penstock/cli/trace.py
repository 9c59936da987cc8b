"""`penstock trace`: the causes and consequences of a message as a tree."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text
from rich.tree import Tree

from penstock.cli.printing import console, note, print_json, printable, shown
from penstock.cli.target import Json, ask
from penstock.console.data import trace as data
from penstock.console.data.trace_nodes import TraceNode


def trace(
    key: Annotated[
        str,
        typer.Argument(
            metavar="KEY", help="A global position, or the id of a message, outbox message or join."
        ),
    ],
    json: Json = False,
) -> None:
    """Show what caused a message, and everything that followed from it.

    Messages, outbox messages, joins, steps of pipelines and commits of tables are a tree, each with
    how it is linked to the one above it; a ? says that the one above may not be the cause. What you
    asked for has a *. It says what was not looked at.
    """
    found = ask(lambda store: data.trace(store, key))
    if json:
        print_json(found)
        return
    tree = Tree(_line(found.root))
    _grow(tree, found.root)
    console().print(tree)
    for one in found.not_looked_at:
        note(one)


def _grow(tree: Tree, node: TraceNode) -> None:
    for child in node.children:
        _grow(tree.add(_line(child)), child)
    if node.more:
        tree.add(Text(f"{node.more:,} more are not shown", "dim"))


def _line(node: TraceNode) -> Text:
    link = f"{node.link}{'' if node.certain else '?'}: " if node.link else ""
    name = f"{node.kind} {node.title}{' *' if node.asked_for else ''}"
    facts = [node.subtitle, node.global_position, node.time, node.id]
    said = "  ".join(shown(one) for one in facts if one not in (None, ""))
    return Text.assemble((link, "cyan"), (printable(name), "bold"), f"  {said}")
