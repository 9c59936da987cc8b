"""The loop of a dispatcher over one store: claim due messages, call their handlers, settle them.

One round is: settle what handlers have finished, extend the leases of the rest, claim as many
messages as there is room for, and give them to the handlers. A round makes one database call after
the other; the handlers run beside it, `concurrency` at a time.

A message is acknowledged, failed, or given back under the token of its claim. Each call is tried
again if that may help. What cannot be done even then is left: the lease ends, and the message
comes again.

Only messages of topics that have a handler are claimed. A topic without one is reported once, when
its first message has been due for a minute: in the log, and as that message's last error.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from penstock.database.waiters import OUTBOX, of_topic
from penstock.errors import PermanentFailure, StaleLease, UnavailableError, first_line
from penstock.log.runs_async import AsyncRunsTransactions
from penstock.log.waiter_async import AsyncWaiter
from penstock.loops.concurrency_async import Handlers
from penstock.loops.failure_policy import FailurePolicy
from penstock.loops.outage import Outage
from penstock.loops.retry import retry
from penstock.outbox import operations
from penstock.outbox.in_progress import Attempt, ClaimCursor, DispatchOptions, InProgress
from penstock.outbox.messages import ClaimedMessage, OutboxMessageId, UndecodablePayload

logger = logging.getLogger("penstock")

#: seconds after which a loop with nothing to do looks for topics without a handler, and cleans up
LONGEST_SLEEP = 600.0

#: handles a message, and returns whether it has acknowledged it
Handle = Callable[[ClaimedMessage, AsyncRunsTransactions], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class AsyncRoute:
    """What handles the messages of a topic, and what to do when that fails."""

    handle: Handle
    policy: FailurePolicy


class AsyncDispatchLoop:
    """Dispatches the messages of one store."""

    def __init__(
        self,
        store: AsyncRunsTransactions,
        routes: Mapping[str, AsyncRoute],
        options: DispatchOptions,
    ) -> None:
        store.context.require_penstock("the outbox")
        self._store = store
        self._routes = routes
        self._options = options
        self._outage = Outage(f"dispatcher {options.owner}", logger)
        self._in_progress = InProgress(options)
        self._cursor = ClaimCursor()
        self._topics: list[str] = []
        self._reported: set[str] = set()
        self._is_stopped = False
        self._may_have_more = False  # the last claim got all that it asked for
        self._next_extension = self._next_clean_up = self._next_report = 0.0
        self.reset()

    def reset(self) -> None:
        """Forget a cancellation, and what a run that failed has left. Call it before each run."""
        self._is_cancelled = False
        self._in_progress.clear()
        self._handlers: Handlers[Attempt] = Handlers(self._options.concurrency, self._handle)

    async def run(self) -> None:
        """Dispatch until `stop()`. The database may be away meanwhile."""
        async with self._handling():
            with self._waiter() as waiter:
                while not self._is_ending:
                    waiter.looks()
                    claimed = None
                    with self._outage.tolerated():
                        claimed = await self._round()
                    if claimed == 0 and not self._in_progress:
                        await self._sleep(waiter)
                    elif not claimed or not self._may_have_more:
                        await self._wait()

    async def run_once(self) -> int:
        """Claim once, handle what was claimed, and return how many messages that were."""
        async with self._handling():
            claimed = 0 if self._is_ending else await self._round(from_start=True)
            while self._in_progress and not self._is_ending:
                await self._tend()
        return claimed

    async def run_until_idle(self) -> int:
        """Dispatch until nothing is due or in progress, and return how many were claimed."""
        handled, is_idle = 0, False
        async with self._handling():
            while not self._is_ending:
                claimed = await self._round(from_start=is_idle)
                handled += claimed
                if is_idle and not self._in_progress:
                    break
                is_idle = not self._in_progress  # unless a claim from the start finds something
                if self._in_progress and not claimed:
                    await self._wait()
        return handled

    def stop(self) -> None:
        """End what runs, after the handlers. Any thread, and a signal handler, may call this."""
        self._is_stopped = True
        self._handlers.wake()

    def cancel(self) -> None:
        """End what runs, and cancel the handlers: their messages go back."""
        self._is_cancelled = True
        self._handlers.cancel()
        self._handlers.wake()

    @property
    def _is_ending(self) -> bool:
        return self._is_stopped or self._is_cancelled

    @asynccontextmanager
    async def _handling(self) -> AsyncIterator[None]:
        """Run handlers; at the end, give back what none has begun and wait for those that run."""
        async with self._handlers:
            try:
                yield
            finally:
                await self._give_back_waiting()
                while self._in_progress:
                    await self._tend()

    async def _round(self, *, from_start: bool = False) -> int:
        """Settle, extend, clean up and claim. Return how many messages were claimed."""
        await self._settle()
        if self._in_progress.have_waited_too_long():
            await self._give_back_waiting()
        await self._extend()
        self._warn_of_slow_handlers()
        await self._clean_up()
        await self._report_unhandled()
        return await self._claim(from_start)

    async def _claim(self, from_start: bool) -> int:
        """Claim as many messages as there is room for, and give them to the handlers."""
        room, options = self._in_progress.room(), self._options
        if not room:
            return 0
        if not self._in_progress:
            self._next_extension = time.monotonic() + options.lease / 3
        topics = sorted(self._routes)
        if topics != self._topics:  # the cursor may be past messages of a topic that is new
            self._topics, self._cursor = topics, ClaimCursor()
        start = self._cursor.take(from_start=from_start)
        claimed = await self._store.run(
            operations.claim(options.owner, room, options.lease, topics, start, durable=False)
        )
        self._may_have_more = len(claimed) == room
        self._cursor.advance(claimed)
        for message in claimed:
            self._handlers.give(self._in_progress.add(message))
        return len(claimed)

    async def _handle(self, attempt: Attempt) -> None:
        """Handle one message, beside the loop, and keep what came of it."""
        message, attempt.begun_at = attempt.message, time.monotonic()
        try:
            if isinstance(message.payload, UndecodablePayload):
                raise PermanentFailure(f"the payload is {message.payload}")
            attempt.is_settled = await self._routes[message.topic].handle(message, self._store)
            attempt.is_handled = True
        except BaseException as error:
            attempt.error = error
        attempt.ended_at = time.monotonic()

    async def _wait(self) -> None:
        """Wait for a handler to end, or until it is time to look again."""
        timeout = min(self._options.polling_interval, self._options.lease / 3)
        if self._in_progress:
            timeout = min(timeout, self._options.longest_wait)
        await self._handlers.wait(timeout)

    def _waiter(self) -> AsyncWaiter:
        wanted = [OUTBOX, *map(of_topic, self._routes)]
        handlers = self._handlers
        return AsyncWaiter(self._store, wanted, held_back=False, wakeup=handlers)

    async def _sleep(self, waiter: AsyncWaiter) -> None:
        """Sleep until a message may be due."""
        due = await self._next_due() if waiter.is_listening else None
        await waiter.sleep(min(self._options.polling_interval, self._options.lease / 3), due=due)

    async def _next_due(self) -> float:
        """Return when there may be something to do, by the monotonic clock.

        If the last claim was not from the start, another one is needed first.
        """
        if not self._cursor.is_from_start:
            return self._cursor.next_from_start
        try:
            seconds = await self._store.run(operations.next_due(self._topics))
        except UnavailableError:
            seconds = self._options.polling_interval
        longest = LONGEST_SLEEP if seconds is None else min(seconds, LONGEST_SLEEP)
        return time.monotonic() + longest

    async def _tend(self) -> None:
        """Wait, and do what has to be done for the messages in progress."""
        await self._wait()
        await self._settle()
        with self._outage.tolerated():
            await self._extend()
        self._warn_of_slow_handlers()

    async def _settle(self) -> None:
        """Acknowledge, fail or give back the messages whose handlers have ended."""
        ended = self._handlers.ended()
        self._in_progress.remove(ended)
        for one in ended:
            if one.error is not None and not self._is_cancelled:
                await self._fail(one.message, one.error)
        handled = [one.message for one in ended if one.is_handled and not one.is_settled]
        stale = await self._end_leases(operations.acknowledge(handled))
        if stale:
            logger.warning("dispatcher %s: the leases of %s had ended", self._options.owner, stale)
        if self._is_cancelled:
            unhandled = [one.message for one in ended if not one.is_handled]
            await self._end_leases(operations.give_back(unhandled))

    async def _fail(self, message: ClaimedMessage, error: BaseException) -> None:
        """Have a message tried again later or, after its last attempt, fail it for good."""
        if isinstance(error, StaleLease) and str(message.id) in error.message_ids:
            logger.warning("dispatcher %s: %s", self._options.owner, error)
            return
        policy = self._routes[message.topic].policy
        reason = f"{type(error).__name__}: {first_line(error)}"
        if not isinstance(error, PermanentFailure):
            logger.warning(
                "dispatcher %s: attempt %d of %d on %s %s failed: %s",
                self._options.owner,
                message.attempts,
                policy.attempts,
                message.topic,
                message.id,
                reason,
            )
            if message.attempts < policy.attempts:
                pause = policy.pause(message.attempts)
                await self._end_leases(operations.abandon(message, pause, reason))
                return
        await self._end_leases(operations.fail(message, reason))

    async def _give_back_waiting(self) -> None:
        """Give back the messages that no handler has begun with. No attempt is used up."""
        unbegun = self._handlers.take_back()
        self._in_progress.remove(unbegun)
        await self._end_leases(operations.give_back(one.message for one in unbegun))

    async def _end_leases(self, calls: Iterable[operations.OnClaim]) -> list[OutboxMessageId]:
        """Run operations on claims, and return the ids whose leases had ended before."""
        stale: list[OutboxMessageId] = []
        for one in calls:
            with self._outage.tolerated():
                stale += await retry(self._store.run)(one)
        return stale

    async def _extend(self) -> None:
        """Extend the leases of the messages in progress, when a third of a lease has passed."""
        if self._in_progress and time.monotonic() >= self._next_extension:
            self._next_extension = time.monotonic() + self._options.lease / 3
            for one in operations.extend(self._in_progress.messages(), self._options.lease):
                await self._store.run(one)

    def _warn_of_slow_handlers(self) -> None:
        for message, seconds in self._in_progress.running_too_long():
            logger.warning(
                "dispatcher %s: the handler of %s has been running for %.1f seconds on message %s",
                self._options.owner,
                message.topic,
                seconds,
                message.id,
            )

    async def _report_unhandled(self) -> None:
        """Now and then, report topics whose messages wait for a handler that is not here."""
        began, options = time.monotonic(), self._options
        if began < self._next_report:
            return
        known = {*self._routes, *self._reported}
        found = await self._store.run(
            operations.report_unhandled(options.owner, known, options.overdue)
        )
        # rare where it takes long, as among many dead index entries
        now = time.monotonic()
        self._next_report = now + max(options.report_every, 20 * (now - began))
        for topic, due in found:
            self._reported.add(topic)
            logger.warning(
                "dispatcher %s: no handler for topic %s here, and its first message is due since"
                " %s: it is left to other dispatchers",
                options.owner,
                topic,
                due,
            )

    async def _clean_up(self) -> None:
        """Now and then, remove messages that were done long ago."""
        keep, batch, now = self._options.keep_done, self._options.clean_up_batch, time.monotonic()
        if keep is None or now < self._next_clean_up:
            return
        messages, joins = await self._store.run(operations.clean_up(keep, batch, failed=False))
        if max(messages, joins) < batch:
            self._next_clean_up = now + self._options.clean_up_every
