"""Where the next claim of a dispatcher begins.

While a long transaction elsewhere holds vacuum back, the index entries of handled messages stay at
the head of the index, and every claim from the start reads all of them. So a dispatcher claims from
the first message of its last claim on. A message that is committed late, or made due in the past,
stands before that point, and such a claim does not look for leases that have ended: for both there
are claims from the start. They take at most one twentieth of the time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from penstock.outbox.messages import ClaimedMessage

#: a claim from the start that took a second is repeated after so many seconds
_PAUSE_FACTOR = 20


@dataclass(slots=True)
class ClaimCursor:
    """Where to claim from next."""

    due: datetime | None = None
    id: UUID | None = None
    #: by the monotonic clock
    next_from_start: float = 0.0
    _began: float = 0.0
    _is_from_start: bool = True

    def take(self, *, from_start: bool = False) -> tuple[datetime | None, UUID | None]:
        """Return where to claim from this time: due and id, or None and None for the start."""
        self._began = time.monotonic()
        self._is_from_start = from_start or self.due is None or self._began >= self.next_from_start
        return (None, None) if self._is_from_start else (self.due, self.id)

    def advance(self, claimed: Sequence[ClaimedMessage]) -> None:
        """Claim from the first of these on next time."""
        if self._is_from_start:
            now = time.monotonic()
            self.next_from_start = now + _PAUSE_FACTOR * (now - self._began)
        if claimed:
            first = min(claimed, key=lambda one: (one.due, one.id))
            self.due, self.id = first.due, first.id
