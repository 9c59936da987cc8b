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

    __slots__ = ("item", "operation", "outcome", "turn")

    def __init__(self, operation: Operation[Any]) -> None:
        assert operation.item is not None, "an operation that cannot be sent in a batch"
        self.operation = operation
        self.item = operation.item
        #: ends the caller's wait: it has an outcome, or sends the next batch
        self.turn = Turn()
        self.outcome: Outcome | Exception | None = None


class AsyncCoalescer:
    """The calls of one event loop that are under way or wait, and who sends them."""

    def __init__(self, home: object, where: str, most_waiting: int) -> None:
        self.home = home
        self._where = where
        self._most_waiting = most_waiting
        self._lock = threading.Lock()
        #: an item for each caller that may still go alone
        self._alone = deque[None]([None] * MOST_ALONE)
        self._is_sending = False  # a batch is under way, or its sender is about to send it
        self._next_sender: QueuedCall | None = None
        self._waiting: deque[QueuedCall] = deque()
        self._last_batch = 0  # how many calls it had

    def enter(self) -> bool:
        """Whether little is under way, so that the caller goes alone. Then it calls `leave`."""
        if self._is_sending:
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
                batch = self._take()  # before those of the last batch queue again
                await finish_in_background(lambda: self._send_from(batch, send))
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

    async def _send_from(self, batch: list[QueuedCall], send: Send) -> None:
        """Send a batch and some after it, and let another caller send the rest."""
        for number in reversed(range(MOST_IN_A_ROW)):
            await self._send(batch, send, hands_over=number == 0)
            if number > 0 and not (batch := self._take()):
                self._hand_over()
                return

    async def _send(self, batch: list[QueuedCall], send: Send, *, hands_over: bool) -> None:
        outcomes: Sequence[Outcome | Exception] = [ALONE] * len(batch)
        try:
            outcomes = await send([call.operation for call in batch])
        except (UnavailableError, StoreClosed) as error:
            if not isinstance(error, LockTableFull):
                outcomes = [copy(error) for _ in batch]
        except Exception as error:  # a call that caused it gets the error when it runs alone
            logger.debug("a batch of %d calls failed, each is run alone: %s", len(batch), error)
        except BaseException:  # interrupted: it sends no more
            hands_over = True
            raise
        finally:
            self._end(batch, outcomes, hands_over)

    def _add(self, call: QueuedCall) -> bool:
        """Queue, and return whether the caller sends a batch at once."""
        with self._lock:
            if len(self._waiting) >= self._most_waiting:
                waiting = f"{self._most_waiting} calls wait to be written"
                raise WriteQueueFull(self._where, f"{waiting}, as many as max_queued_writes allows")
            self._waiting.append(call)
            sends = not self._is_sending
            if sends:
                self._is_sending, self._next_sender = True, call
        return sends

    def _take(self) -> list[QueuedCall]:
        """Take the next batch out of the queue. Its first call is the sender's."""
        batch: list[QueuedCall] = []
        messages = size = 0
        with self._lock:
            self._next_sender = None
            most = max((self._last_batch + len(self._waiting) + 1) // 2, LEAST_TAKEN)
            while self._waiting and len(batch) < most:
                messages += len(self._waiting[0].item.messages)
                size += self._waiting[0].item.size
                if batch and (messages > MOST_MESSAGES or size > MOST_CHARACTERS):
                    break
                batch.append(self._waiting.popleft())
            self._last_batch = len(batch)
        return batch

    def _end(
        self, batch: list[QueuedCall], outcomes: Sequence[Outcome | Exception], hands_over: bool
    ) -> None:
        """Let the callers of this batch go on, but for those that belong into the next."""
        done, again = [], []
        for call, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Refused) and outcome.code == "again":
                again.append(call)
            else:
                call.outcome = outcome
                done.append(call)
        with self._lock:
            self._waiting.extendleft(reversed(again))
        if hands_over:  # before the others, who would make the next sender wait
            self._hand_over()
        for call in done:
            call.turn.give()

    def _hand_over(self) -> None:
        """Let the caller that has waited longest send the next batch."""
        with self._lock:
            sender = self._next_sender = self._waiting[0] if self._waiting else None
            self._is_sending = sender is not None
        if sender is not None:
            sender.turn.give()

    def _abandon(self, call: QueuedCall) -> None:
        """Leave the queue. If the caller was to send the next batch, another one does."""
        with self._lock:
            if call in self._waiting:
                self._waiting.remove(call)
            was_sender = self._next_sender is call
        if was_sender:
            self._hand_over()
