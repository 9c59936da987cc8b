"""Which typed messages a store has declared to its database, so that it need not do so again."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.message.typed import TypedMessage


class Declarations:
    """Remembers classes, not names: a class may be defined anew, with more attributes.

    Who writes needs a class declared; who reads, or guards, also its older messages indexed, for
    which older transactions may have to end first.
    """

    def __init__(self) -> None:
        self._declared: set[type[TypedMessage]] = set()
        self._indexed: set[type[TypedMessage]] = set()

    def lacking(
        self, classes: Iterable[type[TypedMessage]], *, to_write: bool
    ) -> set[type[TypedMessage]]:
        """Return those of the classes for which there is something to do before they are used."""
        return set(classes) - (self._declared if to_write else self._indexed)

    def note(self, one: type[TypedMessage], *, indexed: bool) -> None:
        """Note that the class is declared, and whether its older messages are indexed."""
        self._declared.add(one)
        if indexed:
            self._indexed.add(one)
