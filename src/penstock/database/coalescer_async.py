"""Calls that meet in one process share a round trip, a transaction and a wait for the disk.

The promise: each caller gets its own result or error, after the commit; one that is alone loses
nothing; and no caller waits because another one waits for a lock.

How it is kept. There is no timer. The first few callers go alone, each on its own connection: a
batch of one or two costs more than they do. The next one sends a batch at once. Whoever comes
meanwhile queues. When the batch is done, the caller that has waited longest sends the next (a
thread, which takes long to be woken, only after the one before has sent several). A batch takes at
most half of the callers: the others prepare the next one meanwhile. Tasks send that as soon as it
is ready, so that the server always has one to do.

Calls on one stream, or under one guard, wait for each other in the queue, and not for locks in the
server: while one is under way, alone or in a batch, the others stay and then go together. So a
stream that many write to takes one connection, and its calls are written in the order in which they
came. If the one under way gets no lock in time, the others try by themselves. A batch does not wait
for locks: of the calls for whose locks it would have to, one is run alone, by its own caller. So is
every call if the batch fails as a whole. They have ids, so what was written is found again. If two
batches get in each other's way all the same, there is one at a time for a while.

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
from penstock.loops.concurrency_async import IS_ASYNC, Turn, finish_in_background

#: sends a batch and returns the outcome of each call
Send = Callable[[Sequence[Operation[Any]]], Awaitable[list[Outcome]]]
#: the caller has to run it; and so has one of those that somebody else's locks keep out
ALONE, LOCKED = Refused("alone"), Refused("locked")
_TO_BE_RUN = {one.code for one in (ALONE, LOCKED)} | {"again"}
MOST_ALONE = 8  # callers that go alone before there are batches
MOST_BATCHES = 2 if IS_ASYNC else 1  # under way at once: threads gain nothing from a second
ONE_AT_A_TIME = 20  # batches, after two that wanted the same locks
LEAST_TAKEN = 10  # by a batch, if so many wait: in two they would cost more
MOST_IN_A_ROW = 1 if IS_ASYNC else 4  # batches of one caller: a thread takes long to be woken

logger = logging.getLogger("penstock")


class QueuedCall:
    """A call that waits for its batch."""

    __slots__ = ("batch", "is_abandoned", "item", "operation", "outcome", "turn")

    def __init__(self, operation: Operation[Any]) -> None:
        assert operation.item is not None, "an operation that cannot be sent in a batch"
        self.operation = operation
        self.item = operation.item
        #: ends the caller's wait: it has an outcome, or sends the next batch
        self.turn = Turn()
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

    def __init__(self, home: object, where: str, most_waiting: int) -> None:
        self.home = home
        self._where = where
        self._most_waiting = most_waiting
        self._lock = threading.Lock()
        #: what the calls lock that run alone, by the identity of each
        self._alone: dict[int, frozenset[object]] = {}
        self._senders: list[QueuedCall] = []  # whose callers send, or are about to
        self._waiting: deque[QueuedCall] = deque()
        self._callers = 0  # at the end of the last batch: its own, those under way, those waiting
        self._one_at_a_time = 0  # for so many batches

    def enter(self, item: BatchItem) -> bool:
        """Whether a call goes alone, since little is under way, and none that it would wait for."""
        if self._senders or self._waiting or len(self._alone) >= MOST_ALONE:
            return False
        locks = locks_of(item)
        for locked in list(self._alone.values()):  # a copy: others enter and leave meanwhile
            if not locks.isdisjoint(locked):
                return False
        self._alone[id(item)] = locks
        return True

    def leave(self, item: BatchItem) -> None:
        """If a call has run alone, let those go on that waited for it."""
        if self._alone.pop(id(item), None) is not None and self._waiting:
            with self._lock:
                self._start(self._senders)

    def give_up(self, item: BatchItem) -> None:
        """End a call that got no lock in time: those that wait for it all try by themselves.

        One after the other, each would wait for as long as this one before it failed.
        """
        locked = self._alone.get(id(item))
        if not locked:
            return
        with self._lock:
            for call in [one for one in self._waiting if not is_free(one.item, locked)]:
                if call not in self._senders:
                    self._waiting.remove(call)
                    self._alone[id(call.item)] = locks_of(call.item)
                    call.outcome = ALONE
                    call.turn.give()

    async def run(self, operation: Operation[Any], send: Send) -> Any:
        """Send a call in a batch, and return its result, or `ALONE` if it was left out."""
        call = QueuedCall(operation)
        try:
            if not self._add(call):
                await call.turn.wait()
            if call.outcome is None:
                self._take(call, is_first=True)  # before those of the last batch queue again
                await finish_in_background(lambda: self._send_batches(call, send))
        except BaseException:  # cancelled or interrupted
            self._abandon(call)
            raise
        match call.outcome:
            case None | Refused("alone"):
                return ALONE
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
                await self._send(sender, send, hands_over=number == 0)
                if number == 0 or not self._take(sender):
                    break
        finally:
            self._hand_over(sender)

    async def _send(self, sender: QueuedCall, send: Send, *, hands_over: bool) -> None:
        batch = sender.batch
        outcomes: Sequence[Outcome | Exception] = [ALONE] * len(batch)
        try:
            outcomes = await send([call.operation for call in batch])
        except (UnavailableError, StoreClosed) as error:
            if not isinstance(error, LockTableFull):
                outcomes = [copy(error) for _ in batch]
        except Exception as error:  # a call that caused it gets the error when it runs alone
            logger.debug("a batch of %d calls failed, each is run alone: %s", len(batch), error)
        finally:
            self._end(sender, outcomes, hands_over=hands_over)

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
        self, sender: QueuedCall, outcomes: Sequence[Outcome | Exception], *, hands_over: bool
    ) -> None:
        """Let the callers of a batch go on, but for those that belong into the next."""
        done, again = [], []
        with self._lock:
            for call, outcome in zip(sender.batch, outcomes, strict=True):
                is_left_out = isinstance(outcome, Refused) and outcome.code in _TO_BE_RUN
                if is_left_out and not call.is_abandoned:  # else nobody would run it
                    if call is not sender and self._is_sent_again(call, outcome):
                        again.append(call)
                        continue
                    outcome = ALONE
                    self._alone[id(call.item)] = locks_of(call.item)
                call.outcome = outcome
                done.append(call)
            self._waiting.extendleft(reversed(again))
            under_way = sum([len(one.batch) for one in self._senders])
            self._callers = under_way + len(self._waiting)
            self._one_at_a_time = max(self._one_at_a_time - 1, 0)
            if len(self._senders) > 1 and LOCKED in outcomes:
                self._one_at_a_time = ONE_AT_A_TIME
        if hands_over:  # before the others go on, who would make the next sender wait
            self._hand_over(sender)
        for call in done:
            call.turn.give()
        sender.batch = []

    def _is_sent_again(self, call: QueuedCall, outcome: Outcome | Exception) -> bool:
        """Whether a call belongs into a later batch, since it does not fit or has to wait."""
        if outcome == LOCKED:
            return not is_free(call.item, self._locked())
        return isinstance(outcome, Refused) and outcome.code == "again"

    def _hand_over(self, sender: QueuedCall) -> None:
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
            one.turn.give()
        self._senders = going_on

    def _oldest_free(self, senders: Sequence[QueuedCall]) -> list[QueuedCall]:
        """Return the call that has waited longest and can be sent beside these; or none."""
        locked = self._locked(senders)
        for one in self._waiting:
            if one not in senders and is_free(one.item, locked):
                return [one]
        return []

    def _locked(self, senders: Sequence[QueuedCall] = ()) -> set[object]:
        """Return what the calls lock that run alone, and those that these senders have sent."""
        sent = [locks_of(call.item) for one in senders for call in one.batch]
        return set().union(*list(self._alone.values()), *sent)

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
                one.outcome = ALONE
            one.turn.give()
        self._hand_over(call)
