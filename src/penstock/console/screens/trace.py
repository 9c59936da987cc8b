"""The trace: from any message its causes and consequences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.console.data import trace as data
from penstock.console.screen import Ask, Screen


async def trace(ask: Ask) -> Mapping[str, Any]:
    """Return the tree of a message, an outbox message or a join; nothing without a key."""
    key = ask.text("key")
    if key is None:
        return {"key": None, "trace": None}
    whole = key.isascii() and key.isdigit() and len(key) < 19
    return {"key": key, "trace": await data.trace(ask.store, int(key) if whole else key)}


SCREENS = (
    Screen(
        *("/trace", "trace", "Trace", "trace.html", trace),
        "The causes and consequences of a message as a tree: commands, events, outbox messages, "
        "joins, outputs of pipelines, commits of tables.",
        {"key": "a global position, or the id of a message, an outbox message or a join"},
        live=False,
    ),
)
