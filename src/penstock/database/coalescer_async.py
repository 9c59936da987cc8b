"""Concurrent writes of one process share a round trip, a transaction and a wait for the disk.

The promise: each caller gets its own result or error, after the commit; a single caller loses
nothing; and no caller waits because another one waits for a lock.

How it is kept. There is no timer. While up to eight calls are under way, each is sent by itself, on
a connection of its own: a batch of one or two costs more than they do. The next caller sends a
batch at once. Calls made meanwhile queue. When the batch is done, the caller that has waited
longest sends the next one (a thread, which takes long to wake, only after the one before has sent
several). A batch takes at most half of the callers: the others prepare the next one meanwhile.
Tasks send that as soon as it is ready, so that the server always has one to do.

Calls on one stream, or under one guard, wait for each other in the queue, and not for locks in the
server: while one is under way, by itself or in a batch, the others stay queued, and are then sent
together. So a stream that many write to takes one connection, and its calls are written in the
order in which they came. If the call under way gets no lock in time, the others are sent by
themselves. A batch does not wait for locks: if it would have to, it is left without the calls that
need them, and one of these is sent by itself. So is every call of a batch that fails as a whole:
calls have ids, so what was written is found again. If two batches contend for locks all the same,
there is one at a time for a while. If the connection is lost, the batch is sent once more on
another one, and then each caller gets the error.

A caller that is cancelled leaves the queue. If its batch was sent, it is written; a batch goes on
if the caller that sends it is cancelled. There are no threads or tasks that would have to be
stopped. Each event loop has a queue of its own: if it is closed, only its own callers are lost.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence, Set
from copy import copy
from typing import Any

from penstock.database.batch import MOST_CHARACTERS, MOST_MESSAGES, Outcome, Refused
from penstock.database.operation import BatchItem, Operation
from penstock.errors import (
    LockTableFull,
    StoreClosed,
    UnavailableError,
    WriteQueueFull,
    error_of,
)
from penstock.loops.concurrency_async import IS_ASYNC, Signal, finish_in_background

#: sends a batch and returns the outcome of each call
Send = Callable[[Sequence[Operation[Any]]], Awaitable[list[Outcome]]]
#: the call is to be sent by itself; a lock that it needs is held by another session
UNBATCHED, LOCKED = Refused("unbatched"), Refused("locked")
_TO_BE_RUN = {one.code for one in (UNBATCHED, LOCKED)} | {"again"}
MOST_UNBATCHED = 8  # calls under way, each sent by itself, before there are batches
MOST_BATCHES = 2 if IS_ASYNC else 1  # under way at once: threads gain nothing from a second
ONE_AT_A_TIME = 20  # batches, after two that wanted the same locks
LEAST_TAKEN = 10  # by a batch, if so many wait: in two they would cost more
MOST_IN_A_ROW = 1 if IS_ASYNC else 4  # batches of one caller: a thread takes long to be woken

logger = logging.getLogger("penstock")


class QueuedCall:
    """A call that waits for its batch."""

    __slots__ = ("batch", "is_abandoned", "item", "operation", "outcome", "signal")

    def __init__(self, operation: Operation[Any]) -> None:
        assert operation.item is not None, "an operation that cannot be sent in a batch"
        self.operation = operation
        self.item = operation.item
        #: ends the caller's wait: it has an outcome, or sends the next batch
        self.signal = Signal()
        self.outcome: Outcome | Exception | None = None
        self.is_abandoned = False  # its caller was cancelled or interrupted
        #: the calls that its caller has taken to send them
        self.batch: list[QueuedCall] = []


def locks_of(item: BatchItem) -> frozenset[object]:
    """Return the stream and the conditions of a call: what it would lock, as far as is known."""
    stream = () if item.stream_name is None else (item.stream_name,)
    guard = item.guard
    if guard is None:
        return frozenset(stream)
    return frozenset((*stream, *zip(guard.names, guard.values, strict=True)))


def is_free(item: BatchItem, locked: Set[object]) -> bool:
    """Whether a call locks nothing of this."""
    return not locked or locks_of(item).isdisjoint(locked)


class AsyncCoalescer:
    """The calls of one event loop that are under way or wait, and who sends them."""

    def __init__(self, scope: object, where: str, most_waiting: int) -> None:
        self.scope = scope
        self._where = where
        self._most_waiting = most_waiting
        self._lock = threading.Lock()
        #: what the calls lock that are sent by themselves, by the identity of each
        self._unbatched: dict[int, frozenset[object]] = {}
        self._senders: list[QueuedCall] = []  # whose callers send, or are about to
        self._waiting: deque[QueuedCall] = deque()
        self._callers = 0  # at the end of the last batch: its own, those under way, those waiting
        self._one_at_a_time = 0  # for so many batches

    def try_unbatched(self, item: BatchItem) -> bool:
        """Whether to send a call by itself, since few are under way, and none that it waits for."""
        if self._senders or self._waiting or len(self._unbatched) >= MOST_UNBATCHED:
            return False
        locks = locks_of(item)
        for locked in list(self._unbatched.values()):  # a copy: others change it meanwhile
            if not locks.isdisjoint(locked):
                return False
        self._unbatched[id(item)] = locks
        return True

    def end_unbatched(self, item: BatchItem) -> None:
        """If a call was sent by itself, let those go on that waited for it."""
        if self._unbatched.pop(id(item), None) is not None and self._waiting:
            with self._lock:
                self._start(self._senders)

    def release_waiting(self, item: BatchItem) -> None:
        """End a call that got no lock in time: those that wait for it all try by themselves.

        One after the other, each would wait for as long as this one before it failed.
        """
        locked = self._unbatched.get(id(item))
        if not locked:
            return
        with self._lock:
            for call in [one for one in self._waiting if not is_free(one.item, locked)]:
                if call not in self._senders:
                    self._waiting.remove(call)
                    self._unbatched[id(call.item)] = locks_of(call.item)
                    call.outcome = UNBATCHED
                    call.signal.set()

    async def run(self, operation: Operation[Any], send: Send) -> Any:
        """Send a call in a batch, and return its result, or `UNBATCHED` if it was left out."""
        call = QueuedCall(operation)
        try:
            if not self._add(call):
                await call.signal.wait()
            if call.outcome is None:
                self._take(call, is_first=True)  # before those of the last batch queue again
                await finish_in_background(lambda: self._send_batches(call, send))
        except BaseException:  # cancelled or interrupted
            self._abandon(call)
            raise
        match call.outcome:
            case None | Refused("unbatched"):
                return UNBATCHED
            case Refused(code, facts):
                raise error_of(code, facts, self._where)
            case Exception() as error:
                raise error
            case positions, global_positions:
                return call.item.decode(positions, global_positions)

    async def _send_batches(self, sender: QueuedCall, send: Send) -> None:
        """Send the batch taken and some after it, and let another caller send the rest."""
        try:
            for number in reversed(range(MOST_IN_A_ROW)):
                await self._send(sender, send, is_last=number == 0)
                if number == 0 or not self._take(sender):
                    break
        finally:
            self._start_next_sender(sender)

    async def _send(self, sender: QueuedCall, send: Send, *, is_last: bool) -> None:
        batch = sender.batch
        outcomes: Sequence[Outcome | Exception] = [UNBATCHED] * len(batch)
        try:
            outcomes = await send([call.operation for call in batch])
        except (UnavailableError, StoreClosed) as error:
            if not isinstance(error, LockTableFull):
                outcomes = [_own(error) for _ in batch]
        except Exception as error:  # a call that caused it gets the error when it is sent by itself
            logger.debug(
                "a batch of %d calls failed, each is sent by itself: %s", len(batch), error
            )
        finally:
            self._end(sender, outcomes, is_last=is_last)

    def _add(self, call: QueuedCall) -> bool:
        """Queue, and return whether the caller sends a batch at once."""
        with self._lock:
            if len(self._waiting) >= self._most_waiting:
                waiting = f"{self._most_waiting} calls wait to be written"
                raise WriteQueueFull(self._where, f"{waiting}, as many as max_queued_writes allows")
            self._waiting.append(call)
            is_sender = self._has_enough(self._senders) and is_free(
                call.item, self._locked(self._senders)
            )
            if is_sender:
                self._senders.append(call)
            return is_sender

    def _take(self, sender: QueuedCall, *, is_first: bool = False) -> bool:
        """Take the next batch out of the queue; return whether there is one.

        The first batch of a sender has its own call.
        """
        batch = sender.batch = []
        with self._lock:
            others = [one for one in self._senders if one is not sender]
            if not is_first and not self._has_enough(others):
                return False
            own = [sender] if is_first else []
            fitting = self._fitting(own, others)
            is_oldest = is_first and self._waiting[0] is sender
            batch += [*own, *fitting] if is_oldest else [*fitting, *own]
            for one in batch:
                self._waiting.remove(one)
        return batch != []

    def _fitting(self, own: Sequence[QueuedCall], others: Sequence[QueuedCall]) -> list[QueuedCall]:
        """Return the oldest calls that fit into a batch beside those that others send."""
        most, locked = self._share() - len(own), self._locked(others)
        messages = sum([len(one.item.messages) for one in own])
        size = sum([one.item.size for one in own])
        found: list[QueuedCall] = []
        for one in self._waiting:
            if one in self._senders or one in own or not is_free(one.item, locked):
                continue
            messages += len(one.item.messages)
            size += one.item.size
            is_full = messages > MOST_MESSAGES or size > MOST_CHARACTERS
            if len(found) == most or (is_full and (found or own)):
                break
            found.append(one)
        return found

    def _has_enough(self, senders: Sequence[QueuedCall]) -> bool:
        """Whether enough calls wait for one more sender. The first one needs no others."""
        if not senders:
            return bool(self._waiting)
        return len(senders) < self._most_batches() and len(self._waiting) >= self._share()

    def _share(self) -> int:
        """Return how many calls a batch takes: half of the callers, while the others prepare."""
        return max((self._callers + 1) // 2, LEAST_TAKEN)

    def _most_batches(self) -> int:
        return 1 if self._one_at_a_time else MOST_BATCHES

    def _end(
        self, sender: QueuedCall, outcomes: Sequence[Outcome | Exception], *, is_last: bool
    ) -> None:
        """Let the callers of a batch go on, but for those that belong into the next."""
        done, again = [], []
        with self._lock:
            for call, outcome in zip(sender.batch, outcomes, strict=True):
                is_left_out = isinstance(outcome, Refused) and outcome.code in _TO_BE_RUN
                if is_left_out and not call.is_abandoned:  # else it would never be sent
                    if call is not sender and self._is_sent_again(call, outcome):
                        again.append(call)
                        continue
                    outcome = UNBATCHED
                    self._unbatched[id(call.item)] = locks_of(call.item)
                call.outcome = outcome
                done.append(call)
            self._waiting.extendleft(reversed(again))
            under_way = sum([len(one.batch) for one in self._senders])
            self._callers = under_way + len(self._waiting)
            self._one_at_a_time = max(self._one_at_a_time - 1, 0)
            if len(self._senders) > 1 and LOCKED in outcomes:
                self._one_at_a_time = ONE_AT_A_TIME
        if is_last:  # before the others go on: they would delay the next sender
            self._start_next_sender(sender)
        for call in done:
            call.signal.set()
        sender.batch = []

    def _is_sent_again(self, call: QueuedCall, outcome: Outcome | Exception) -> bool:
        """Whether a call belongs into a later batch, since it does not fit or has to wait."""
        if outcome == LOCKED:
            return not is_free(call.item, self._locked())
        return isinstance(outcome, Refused) and outcome.code == "again"

    def _start_next_sender(self, sender: QueuedCall) -> None:
        """Let the caller that has waited longest send the next batch, if this one was to.

        If this is interrupted it is called again, so each step of it can be made twice.
        """
        with self._lock:
            if sender in self._senders:
                self._start([one for one in self._senders if one is not sender], sender)

    def _start(self, senders: Sequence[QueuedCall], *before: QueuedCall) -> None:
        """Let one more caller send, if enough wait: the first that waits for none under way."""
        going_on = [*senders]
        if self._has_enough(senders):
            going_on += self._oldest_free(senders)
        self._senders = [*before, *going_on]
        for one in going_on:
            one.signal.set()
        self._senders = going_on

    def _oldest_free(self, senders: Sequence[QueuedCall]) -> list[QueuedCall]:
        """Return the call that has waited longest and can be sent beside these; or none."""
        locked = self._locked(senders)
        for one in self._waiting:
            if one not in senders and is_free(one.item, locked):
                return [one]
        return []

    def _locked(self, senders: Sequence[QueuedCall] = ()) -> set[object]:
        """Return what the calls lock that are sent by themselves or by these senders."""
        sent = [locks_of(call.item) for one in senders for call in one.batch]
        return set().union(*list(self._unbatched.values()), *sent)

    def _abandon(self, call: QueuedCall) -> None:
        """Leave the queue, and let others send what this caller was to send."""
        with self._lock:
            call.is_abandoned = True
            if call in self._waiting:
                self._waiting.remove(call)
            elif IS_ASYNC:
                return  # what was taken is sent in the background
            taken = [one for one in call.batch if one not in self._waiting]
        for one in taken:  # interrupted between two steps: they may have been sent, and have ids
            if one.outcome is None:
                one.outcome = UNBATCHED
            one.signal.set()
        self._start_next_sender(call)


def _own(error: Exception) -> Exception:
    """Return the error for one of the callers: each traceback is a caller's own."""
    own = copy(error)
    own.__cause__, own.__suppress_context__ = error.__cause__, error.__suppress_context__
    return own
