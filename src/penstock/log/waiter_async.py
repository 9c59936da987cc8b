"""A waiter: sleeps for a loop that has found nothing, until there may be something new.

A loop registers its waiter, and then looks and sleeps in turn:

    with waiter:
        while not stopping:
            waiter.looks()
            found = await look()
            if not found:
                await waiter.sleep(pause)

A wake-up after `looks()` ends the sleep. Without wake-ups the sleep lasts for `pause`, as
it does until notifications arrive. With them it lasts until a safety look of the store finds
something (`database/wake_ups.py`), until `due`, or for ten minutes, since rows that are changed by
hand are seen by no such look.

A wake-up may be for a message that an open writer before it holds back. There is none when that
writer rolls back. So after a wake-up the waiter asks whether messages are held back, and as long as
that is so, it looks again after a short pause, twice as long each time.

A waiter that is woken in vain many times a second, such as one that filters what it reads,
sleeps a little longer each time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, LiteralString, Self

from penstock.database.operation import Operation, call
from penstock.database.waiters import Registration
from penstock.database.wake_ups import WakeUps
from penstock.errors import UnavailableError
from penstock.log.runs_async import AsyncRuns
from penstock.loops.concurrency_async import StopEvent, Wakeup

# in seconds
SHORTEST_PAUSE, LONGEST_PAUSE = 0.002, 0.1  # while messages are held back
LONGEST_SLEEP = 600.0
#: how many wake-ups in vain, one soon after the other, are answered at once
MOST_VAIN, SOON = 4, 1.0

_LOG_ENDS: LiteralString = "select penstock.watermark(), penstock.last_position()"
_LOG_ENDS_AFTER: LiteralString = "select penstock.watermark_after(%s), penstock.last_position()"


def log_ends(after: int | None = None) -> Operation[tuple[int, int]]:
    """Return the watermark and the last position of the log.

    `after` is for a reader that wants only what comes after this global position.
    """
    if after is None:
        sql, arguments = _LOG_ENDS, tuple[Any, ...]()
    else:
        sql, arguments = _LOG_ENDS_AFTER, (after,)
    return call("log_ends", sql, arguments, lambda rows: (rows[0][0], rows[0][1]))


class AsyncWaiter:
    """Sleeps until it is woken for one of the wanted names.

    `held_back` says that an open writer may hold back what it waits for. `wakeup` is what the loop
    sleeps on, if it also waits for something else: it has `wake()` and `wait(timeout)`.
    """

    def __init__(
        self,
        runs: AsyncRuns,
        wanted: Iterable[str],
        *,
        held_back: bool = True,
        wakeup: Any = None,
    ) -> None:
        self._runs = runs
        self._wake_ups = runs.context.wake_ups
        self._wanted = frozenset(wanted)
        self._held_back = held_back and runs.context.edition.has_watermark
        self._given = wakeup
        self._wakeup: Any = None
        self._registration: Registration | None = None
        self._stopping = StopEvent()
        self._was_notified = False
        #: the names that it was woken for before the last `looks()`
        self.notified_of: set[str] = set()

    def __enter__(self) -> Self:
        wakeup = self._wakeup = self._given or Wakeup()
        #: whether messages may be held back: there was a wake-up since they were not
        self._is_doubtful = self._held_back
        self._pause = self._next_pause = SHORTEST_PAUSE
        self._vain, self._last_vain = 0, 0.0
        #: whether a safety look has made it look, and nobody has notified
        self._is_unnotified = False
        if self._wake_ups is not None:
            self._registration = Registration(self._wanted, wakeup.wake)
            self._wake_ups.waiters.add(self._registration)
        return self

    def __exit__(self, *_: object) -> None:
        if self._wake_ups is not None and self._registration is not None:
            self._note(found=True)
            self._wake_ups.waiters.remove(self._registration)
            self._registration = None

    @property
    def is_listening(self) -> bool:
        """Whether a sleep lasts until something happens, and not for a pause."""
        return self._wake_ups is not None and self._wake_ups.is_listening

    def looks(self) -> None:
        """Note that the loop looks from now on: a later wake-up ends its next sleep."""
        one = self._registration
        if one is not None:
            self._note(found=True)  # else it would have slept
            self._is_unnotified = one.is_woken and not one.is_notified
            self.notified_of, one.notified_of = one.notified_of, set()
            self._is_doubtful |= one.is_notified and self._held_back
            self._was_notified, one.is_notified, one.is_woken = one.is_notified, False, False

    def stop(self) -> None:
        """End the sleep, and let no other begin. A signal handler may call it."""
        self._stopping.set()
        if self._wakeup is not None:
            self._wakeup.wake()

    async def sleep(
        self,
        pause: float,
        *,
        due: float | None = None,
        found: bool = False,
        reached: int | None = None,
        ended: Callable[[], bool] | None = None,
    ) -> bool:
        """Sleep until there may be something new, or until `due` by the monotonic clock.

        `found` says whether the last look has found something, `reached` up to which global
        position everything was read. `ended` is called once in a `pause`, and at the end of the
        sleep; its last answer is returned.
        """
        one, wake_ups = self._registration, self._wake_ups
        self._next_pause = pause
        self._note(found)
        if self._stopping.is_set() or await self._looks_again(reached):
            return ended is not None and ended()
        if one is None or wake_ups is None:
            await self._wakeup.wait(_until(due, pause))
            return ended is not None and ended()
        self._count_vain(found)
        wake_ups.listen()
        has_ended = await self._sleep(one, wake_ups, pause, due, ended)
        if one.is_notified and self._vain > MOST_VAIN and not has_ended:
            longer = SHORTEST_PAUSE * 2.0 ** min(self._vain - MOST_VAIN, 16)
            await self._stopping.wait_for(_until(due, min(longer, LONGEST_PAUSE)))
        return has_ended

    async def _sleep(
        self,
        one: Registration,
        wake_ups: WakeUps,
        pause: float,
        due: float | None,
        ended: Callable[[], bool] | None,
    ) -> bool:
        longest, began = max(wake_ups.pace.patience, pause), time.monotonic()
        due = min(math.inf if due is None else due, began + LONGEST_SLEEP)
        while True:
            is_listening = wake_ups.is_listening
            timeout = longest if is_listening and ended is None else pause
            is_woken = one.is_woken or await self._wakeup.wait(_until(due, timeout))
            now = time.monotonic()
            is_over = one.is_woken or self._stopping.is_set() or not is_listening
            is_over |= is_woken and self._given is not None
            is_over |= now >= due
            if now - began >= longest:
                is_over |= not wake_ups.has_looked_since(began)
                began = now
            if ended is not None and ended():
                return True
            if is_over or one.is_woken:  # `ended` may have written something
                return False

    def _note(self, found: bool) -> None:
        """Have the next safety look soon, if the last one has led to something."""
        if found and self._is_unnotified and self._wake_ups is not None:
            self._wake_ups.look_again(self._next_pause)
        self._is_unnotified = False

    def _count_vain(self, found: bool) -> None:
        """Count the wake-ups in a row, each soon after the other, after which nothing was found."""
        now = time.monotonic()
        if found or now - self._last_vain > SOON:
            self._vain = 0
        if self._was_notified and not found:
            self._vain, self._last_vain = self._vain + 1, now

    async def _looks_again(self, reached: int | None) -> bool:
        """Whether to look again at once, or after a short pause, since messages were held back."""
        if not self._is_doubtful or self._wake_ups is None:
            return False
        with suppress(UnavailableError):  # the next look raises it
            watermark, last = await self._runs.run(log_ends(reached))
            if watermark < last:
                await self._wakeup.wait(self._pause)
                self._pause = min(2 * self._pause, LONGEST_PAUSE)
                return True
            self._is_doubtful, self._pause = False, SHORTEST_PAUSE
            return reached is None or reached < last
        return False


def _until(due: float | None, longest: float) -> float:
    return longest if due is None else max(0.0, min(longest, due - time.monotonic()))
