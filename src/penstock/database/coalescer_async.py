"""Calls that meet in one process share a round trip, a transaction and a wait for the disk.

The promise: each caller gets its own result or error, after the commit; one that is alone loses
nothing; and no caller waits because another one waits for a lock.

How it is kept. There is no timer. The first few callers go alone, each on its own connection: a
batch of one or two costs more than they do. The next one sends a batch at once. Whoever comes
meanwhile queues. When the batch is done, the caller that has waited longest sends the next (a
thread, which takes long to be woken, only after the one before has sent several). So one batch is
under way at a time, and calls are sent in the order in which they came. A batch takes at most half
of the callers: the others prepare the next one meanwhile. A batch does not wait for locks: a call
that would have to is run alone, by its own caller, and so is every call if the batch fails as a
whole. They have ids, so what was written is found again.

A caller that is cancelled leaves the queue. If its batch was sent, it is written; a batch goes on
if the caller that sends it is cancelled. There are no threads or tasks that would have to be
stopped. Each event loop has a queue of its own: if it is closed, only its own callers are lost.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from typing import Any

from penstock.database.batch import MOST_CHARACTERS, MOST_MESSAGES, Outcome, Refused
from penstock.database.operation import Operation
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
ALONE = Refused("alone")
MOST_ALONE = 8  # callers that go alone before there are batches
LEAST_TAKEN = 10  # by a batch, if so many wait: in two they would cost more
MOST_IN_A_ROW = 1 if IS_ASYNC else 4  # batches of one caller: a thread takes long to be woken

logger = logging.getLogger("penstock")


class QueuedCall:
    """A call that waits for its batch."""

    __slots__ = ("batch", "item", "operation", "outcome", "turn")

    def __init__(self, operation: Operation[Any]) -> None:
        assert operation.item is not None, "an operation that cannot be sent in a batch"
        self.operation = operation
        self.item = operation.item
        #: ends the caller's wait: it has an outcome, or sends the next batch
        self.turn = Turn()
        self.outcome: Outcome | Exception | None = None
        #: the calls that its caller has taken to send them
        self.batch: list[QueuedCall] = []


class AsyncCoalescer:
    """The calls of one event loop that are under way or wait, and who sends them."""

    def __init__(self, home: object, where: str, most_waiting: int) -> None:
        self.home = home
        self._where = where
        self._most_waiting = most_waiting
        self._lock = threading.Lock()
        #: an item for each caller that may still go alone
        self._alone = deque[None]([None] * MOST_ALONE)
        self._sender: QueuedCall | None = None  # whose caller sends, or is about to
        self._waiting: deque[QueuedCall] = deque()
        self._last_batch = 0  # how many calls it had

    def enter(self) -> bool:
        """Whether little is under way, so that the caller goes alone. Then it calls `leave`."""
        if self._sender is not None:
            return False
        try:
            self._alone.pop()  # of a deque: without a lock
        except IndexError:
            return False
        return True

    def leave(self) -> None:
        """End the call of a caller that went alone."""
        self._alone.append(None)

    async def run(self, operation: Operation[Any], send: Send) -> Any:
        """Send a call in a batch, and return its result, or `ALONE` if it was left out."""
        call = QueuedCall(operation)
        try:
            if not self._add(call):
                await call.turn.wait()
            if call.outcome is None:
                self._take(call)  # before those of the last batch queue again
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
            if self._sender is None:
                self._sender = call
            return self._sender is call

    def _take(self, sender: QueuedCall) -> bool:
        """Take the next batch out of the queue; return whether there is one."""
        batch = sender.batch = []
        messages = size = 0
        with self._lock:
            most = max((self._last_batch + len(self._waiting) + 1) // 2, LEAST_TAKEN)
            while self._waiting and len(batch) < most:
                first = self._waiting[0]
                messages += len(first.item.messages)
                size += first.item.size
                if batch and (messages > MOST_MESSAGES or size > MOST_CHARACTERS):
                    break
                batch.append(first)
                self._waiting.popleft()
            self._last_batch = len(batch)
        return batch != []

    def _end(
        self, sender: QueuedCall, outcomes: Sequence[Outcome | Exception], *, hands_over: bool
    ) -> None:
        """Let the callers of a batch go on, but for those that belong into the next."""
        done, again = [], []
        for call, outcome in zip(sender.batch, outcomes, strict=True):
            if isinstance(outcome, Refused) and outcome.code == "again":
                again.append(call)
            else:
                call.outcome = outcome
                done.append(call)
        with self._lock:
            self._waiting.extendleft(reversed(again))
        if hands_over:  # before the others go on, who would make the next sender wait
            self._hand_over(sender)
        for call in done:
            call.turn.give()
        sender.batch = []

    def _hand_over(self, sender: QueuedCall) -> None:
        """Let the caller that has waited longest send the next batch, if this one was to."""
        with self._lock:
            if self._sender is not sender:
                return
            following = self._sender = self._waiting[0] if self._waiting else None
        if following is not None:
            following.turn.give()

    def _abandon(self, call: QueuedCall) -> None:
        """Leave the queue, and let others send what this caller was to send."""
        with self._lock:
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
