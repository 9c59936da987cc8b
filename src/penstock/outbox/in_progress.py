"""What a dispatch loop keeps: the messages in progress, its room for more, where it claims next.

More is claimed than handlers can run at a time, so that they do not have to wait, but only what
they finish within `claim_ahead` seconds: what is claimed here and waits is kept from other
dispatchers. If handlers take longer than they did before, what has waited for more than
`longest_wait` seconds goes back.

While a long transaction elsewhere holds vacuum back, the index entries of handled messages stay at
the head of the index, and every claim from the start reads all of them. So a dispatcher claims from
the first message of its last claim on. A message that is committed late, or made due in the past,
stands before that point, and such a claim does not look for leases that have ended: for both there
are claims from the start. They take at most one twentieth of the time.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from penstock.outbox.messages import ClaimedMessage

#: a claim from the start that took a second is repeated after so many seconds
_PAUSE_FACTOR = 20


@dataclass(frozen=True, slots=True)
class DispatchOptions:
    """How a dispatch loop works. Durations are in seconds."""

    owner: str
    concurrency: int = 10
    batch_size: int = 500
    lease: float = 30.0
    polling_interval: float = 0.1
    keep_done: float | None = None
    warn_after: float = 300.0
    claim_ahead: float = 0.2
    longest_wait: float = 1.0
    #: for how long messages of a topic without a handler may be due
    overdue: float = 60.0
    report_every: float = 60.0
    clean_up_every: float = 60.0
    clean_up_batch: int = 10_000


@dataclass(slots=True, eq=False)
class Attempt:
    """One attempt at a claimed message. Times are those of the monotonic clock."""

    message: ClaimedMessage
    claimed_at: float
    #: after how many seconds of its handler the next warning is due
    warn_after: float
    begun_at: float | None = None
    ended_at: float | None = None
    is_handled: bool = False
    #: whether the handler has acknowledged the message itself
    is_settled: bool = False
    error: BaseException | None = None


class InProgress:
    """The attempts of one dispatch loop."""

    def __init__(self, options: DispatchOptions) -> None:
        self._options = options
        self._attempts: dict[UUID, Attempt] = {}
        self._seconds_each = options.claim_ahead

    def __len__(self) -> int:
        return len(self._attempts)

    def add(self, message: ClaimedMessage) -> Attempt:
        """Add a message that was claimed now, and return the attempt at it."""
        attempt = Attempt(message, time.monotonic(), self._options.warn_after)
        self._attempts[message.id] = attempt
        return attempt

    def remove(self, attempts: Iterable[Attempt]) -> None:
        """Remove attempts that have ended or were never begun."""
        for one in attempts:
            self._attempts.pop(one.message.id, None)
            if one.begun_at is not None and one.ended_at is not None:
                seconds = one.ended_at - one.begun_at
                self._seconds_each += (seconds - self._seconds_each) / 5

    def clear(self) -> None:
        """Remove all attempts; the leases of their messages end."""
        self._attempts.clear()

    def messages(self) -> list[ClaimedMessage]:
        """Return the messages."""
        return [one.message for one in self._attempts.values()]

    def room(self) -> int:
        """Return how many messages to claim now: none, if there is hardly any room.

        While a handler runs for long, its share of `concurrency` finishes nothing else.
        """
        options = self._options
        slow = sum(seconds > options.claim_ahead for _, seconds in self._running())
        concurrency = options.concurrency - slow
        in_time = int(concurrency * options.claim_ahead / max(self._seconds_each, 1e-6))
        ahead = max(concurrency, min(options.batch_size, in_time))
        room = min(ahead - (len(self) - slow), options.batch_size)
        return room if room >= max(1, ahead // 4) else 0

    def have_waited_too_long(self) -> bool:
        """Whether a message has waited for its handler for more than `longest_wait` seconds."""
        waiting = [one.claimed_at for one in self._attempts.values() if one.begun_at is None]
        return bool(waiting) and time.monotonic() - min(waiting) > self._options.longest_wait

    def running_too_long(self) -> Iterator[tuple[ClaimedMessage, float]]:
        """Yield the messages whose handlers run for too long, and for how many seconds.

        A message is named again when that has doubled.
        """
        for one, seconds in self._running():
            if seconds >= one.warn_after:
                one.warn_after = 2 * max(seconds, self._options.warn_after)
                yield one.message, seconds

    def _running(self) -> list[tuple[Attempt, float]]:
        now = time.monotonic()
        attempts = self._attempts.values()
        return [(one, now - one.begun_at) for one in attempts if one.begun_at is not None]


@dataclass(slots=True)
class ClaimCursor:
    """Where to claim from next."""

    due: datetime | None = None
    id: UUID | None = None
    #: by the monotonic clock
    next_from_start: float = 0.0
    _began: float = 0.0
    #: whether the last claim was from the start
    is_from_start: bool = True

    def take(self, *, from_start: bool = False) -> tuple[datetime | None, UUID | None]:
        """Return where to claim from this time: due and id, or None and None for the start."""
        self._began = time.monotonic()
        self.is_from_start = from_start or self.due is None or self._began >= self.next_from_start
        return (None, None) if self.is_from_start else (self.due, self.id)

    def advance(self, claimed: Sequence[ClaimedMessage]) -> None:
        """Claim from the first of these on next time. A claim returns them in order."""
        if self.is_from_start:
            now = time.monotonic()
            self.next_from_start = now + _PAUSE_FACTOR * (now - self._began)
        if claimed:
            self.due, self.id = claimed[0].due, claimed[0].id
