"""The loop of a dispatcher over one store: claim due messages, call their handlers, settle them.

One round is: settle what handlers have finished, extend the leases of the rest, claim as many
messages as there is room for, and give them to the handlers. A round makes one database call after
the other; the handlers run beside it, `concurrency` at a time.

Only messages of topics that have a handler are claimed. A topic without one is reported once, when
its first message has been due for a minute: in the log, and as that message's last error.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from penstock.errors import PermanentFailure
from penstock.log.runs_async import AsyncRunsTransactions
from penstock.loops.concurrency_async import Handlers
from penstock.loops.outage import Outage
from penstock.outbox import operations
from penstock.outbox.claim_cursor import ClaimCursor
from penstock.outbox.in_progress import Attempt, DispatchOptions, InProgress
from penstock.outbox.leases_async import AsyncLeases
from penstock.outbox.messages import ClaimedMessage
from penstock.outbox.payload import UndecodablePayload
from penstock.outbox.routes_async import AsyncRoute

logger = logging.getLogger("penstock")


class AsyncDispatchLoop:
    """Dispatches the messages of one store."""

    def __init__(
        self,
        store: AsyncRunsTransactions,
        routes: Mapping[str, AsyncRoute],
        options: DispatchOptions,
    ) -> None:
        self._store = store
        self._routes = routes
        self._options = options
        self._outage = Outage(f"dispatcher {options.owner}", logger)
        self._leases = AsyncLeases(store, options.owner, options.lease, self._outage)
        self._in_progress = InProgress(options)
        self._cursor = ClaimCursor()
        self._topics: list[str] = []
        self._reported: set[str] = set()
        self._is_stopped = False
        self._next_extension = 0.0
        self._next_clean_up = 0.0
        self._next_report = 0.0
        self.reset()

    def reset(self) -> None:
        """Forget a cancellation, and what a run that failed has left. Call it before each run."""
        self._is_cancelled = False
        self._in_progress.clear()
        self._handlers: Handlers[Attempt] = Handlers(self._options.concurrency, self._handle)

    async def run(self) -> None:
        """Dispatch until `stop()`. The database may be away meanwhile."""
        async with self._handling():
            while not self._is_ending:
                claimed = 0
                with self._outage.tolerated():
                    claimed = await self._round()
                if not claimed:
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
                if self._in_progress:
                    is_idle = False
                    if not claimed:
                        await self._wait()
                elif is_idle:
                    break
                else:
                    is_idle = True  # unless a claim from the start finds something
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
        self._warn()
        await self._clean_up()
        await self._report_unhandled()
        claimed = await self._claim(from_start)
        for message in claimed:
            self._handlers.give(self._in_progress.add(message))
        return len(claimed)

    async def _claim(self, from_start: bool) -> list[ClaimedMessage]:
        room, options = self._in_progress.room(), self._options
        if not room:
            return []
        if not self._in_progress:
            self._next_extension = time.monotonic() + options.lease / 3
        topics = sorted(self._routes)
        if topics != self._topics:  # the cursor may be past messages of a topic that is new
            self._topics, self._cursor = topics, ClaimCursor()
        claimed = await self._store.run(
            operations.claim(
                self._store.context,
                options.owner,
                room,
                options.lease,
                topics,
                self._cursor.take(from_start=from_start),
            )
        )
        self._cursor.advance(claimed)
        return claimed

    async def _handle(self, attempt: Attempt) -> None:
        """Handle one message, beside the loop, and keep what came of it."""
        attempt.begun_at = time.monotonic()
        try:
            attempt.is_settled = await self._call(attempt.message)
            attempt.is_handled = True
        except BaseException as error:
            attempt.error = error
        attempt.ended_at = time.monotonic()

    async def _call(self, message: ClaimedMessage) -> bool:
        if isinstance(message.payload, UndecodablePayload):
            raise PermanentFailure(f"the payload is {message.payload}")
        return await self._routes[message.topic].handle(message, self._store)

    async def _wait(self) -> None:
        """Wait for a handler to end, or until it is time to look again."""
        timeout = min(self._options.polling_interval, self._options.lease / 3)
        if self._in_progress:
            timeout = min(timeout, self._options.longest_wait)
        await self._handlers.wait(timeout)

    async def _tend(self) -> None:
        """Wait, and do what has to be done for the messages in progress."""
        await self._wait()
        await self._settle()
        with self._outage.tolerated():
            await self._extend()
        self._warn()

    async def _settle(self) -> None:
        """Acknowledge, fail or give back the messages whose handlers have ended."""
        ended = self._handlers.ended()
        for one in ended:
            self._in_progress.remove(one)
        for one in ended:
            if one.error is not None and not self._is_cancelled:
                policy = self._routes[one.message.topic].policy
                await self._leases.fail(one.message, one.error, policy)
        await self._leases.acknowledge(
            one.message for one in ended if one.is_handled and not one.is_settled
        )
        if self._is_cancelled:
            await self._leases.give_back(one.message for one in ended if not one.is_handled)

    async def _give_back_waiting(self) -> None:
        """Give back the messages that no handler has begun with."""
        unbegun = self._handlers.take_back()
        for one in unbegun:
            self._in_progress.remove(one)
        await self._leases.give_back(one.message for one in unbegun)

    async def _extend(self) -> None:
        """Extend the leases of the messages in progress, when a third of a lease has passed."""
        if self._in_progress and time.monotonic() >= self._next_extension:
            self._next_extension = time.monotonic() + self._options.lease / 3
            await self._leases.extend(self._in_progress.messages())

    def _warn(self) -> None:
        """Name the handlers that run for too long."""
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
            operations.report_unhandled(self._store.context, options.owner, known, options.overdue)
        )
        # rare where it takes long, as among many dead index entries
        now = time.monotonic()
        self._next_report = now + max(options.report_every, 20 * (now - began))
        for one in found:
            self._reported.add(one.topic)
            logger.warning(
                "dispatcher %s: no handler for topic %s here, and its first message is due since"
                " %s: it is left to other dispatchers",
                options.owner,
                one.topic,
                one.due,
            )

    async def _clean_up(self) -> None:
        """Now and then, remove messages that were done long ago."""
        keep, batch, now = self._options.keep_done, self._options.clean_up_batch, time.monotonic()
        if keep is None or now < self._next_clean_up:
            return
        removed = await self._store.run(
            operations.clean_up(self._store.context, keep, batch, failed=False)
        )
        if max(removed.messages, removed.joins) < batch:
            self._next_clean_up = now + self._options.clean_up_every
