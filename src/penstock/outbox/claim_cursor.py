"""How far along the ready messages a claimer is.

While a long transaction elsewhere keeps vacuum from its work, the entries of handled messages stay
at the head of the index, and every look from its start walks over all of them. So a claimer goes on
from the first message of its last claim. A message that was committed late, or made due in the
past, stands before that point, and ended leases are not looked for: for those there are whole
looks. They are rare only where they are dear, one part in twenty of the time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from penstock.outbox.messages import ClaimedMessage

_SHARE = 20


@dataclass(slots=True)
class Floor:
    """Where to claim from next."""

    due: datetime | None = None
    id: UUID | None = None
    _began: float = 0.0
    _next_whole_look: float = 0.0
    _is_whole: bool = True

    def take(self, *, whole: bool = False) -> tuple[datetime | None, UUID | None]:
        """Return where to claim from this time; from the start if it must be a whole look."""
        self._began = time.monotonic()
        self._is_whole = whole or self.due is None or self._began >= self._next_whole_look
        return (None, None) if self._is_whole else (self.due, self.id)

    def note(self, claimed: Sequence[ClaimedMessage]) -> None:
        """Go on from the first of these next time."""
        if self._is_whole:
            now = time.monotonic()
            self._next_whole_look = now + _SHARE * (now - self._began)
        if claimed:
            first = min(claimed, key=lambda one: (one.due, one.id))
            self.due, self.id = first.due, first.id
