"""Which typed messages a store has declared to its database, so that it need not do so again."""

from __future__ import annotations

from penstock.typed import TypedMessage


class Declarations:
    """Remembers classes, not names: a class may be defined anew, with more attributes.

    Who writes needs a class declared; who reads, or guards, also its older messages indexed, for
    which older transactions may have to end first.
    """

    def __init__(self) -> None:
        self._indexed: dict[type[TypedMessage], bool] = {}

    def lack(self, one: type[TypedMessage], *, to_write: bool) -> bool:
        """Whether there is something to do before the class can be written, or read."""
        indexed = self._indexed.get(one)
        return indexed is None or not (indexed or to_write)

    def note(self, one: type[TypedMessage], *, indexed: bool) -> None:
        """Note that the class is declared, and whether its older messages are indexed."""
        self._indexed[one] = indexed
