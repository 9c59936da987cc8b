"""An action: what it would do, and how it is done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from penstock.console.data.dead_letter_actions import Outcome
from penstock.console.data.previews import Preview
from penstock.console.screen import Ask, as_whole
from penstock.errors import ValidationError


@dataclass(frozen=True)
class Done:
    """What an action has done."""

    summary: str
    #: of several things, what became of each
    outcomes: tuple[Outcome, ...] = ()


@dataclass(frozen=True)
class Action:
    """One action: its name in the address, and what it does."""

    name: str
    title: str
    preview: Callable[[Ask], Awaitable[Preview]]
    run: Callable[[Ask, str], Awaitable[Done]]
    #: whether it cannot be undone
    danger: bool = False
    #: fields that are not recorded
    private: tuple[str, ...] = ()


def number(ask: Ask, name: str, default: int | None = None) -> int:
    """Return a whole number that a form has."""
    found = ask.text(name)
    if found is None:
        if default is None:
            raise ValidationError(name, None, "a whole number")
        return default
    return as_whole(name, found)
