"""A worker: claim a partition, handle its messages, append the outcome and acknowledge, at once.

The promise: every message of every partition is handled in order, at least once, by one worker at a
time; and what a handler returns is appended exactly once, under the partition's guard, in the same
transaction as the acknowledgement. If another writer appends to the boundary meanwhile, nothing is
appended and the partition is claimed again, with the messages of then.

A worker that dies loses its claim when the lease ends; while it lives, the lease is extended. A
partition that keeps failing is parked, alone; the others go on.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import Any

from penstock.database.waiters import TYPES, of_group, of_type
from penstock.errors import (
    ConcurrencyError,
    IndexingUnfinished,
    StaleClaim,
    UnavailableError,
    ValidationError,
    first_line,
)
from penstock.groups import claims
from penstock.groups.claims import Claim, ClaimOrder
from penstock.groups.decide_claim_async import NOT_THE_HANDLER, decide_claim
from penstock.groups.deciding import PartitionDecider
from penstock.groups.groups_async import AsyncGroups
from penstock.log.append import several
from penstock.log.boundary import MessageType, classes_of, known_classes
from penstock.log.boundary_calls_async import Messages
from penstock.log.decider import Decider
from penstock.log.declare_async import declare_missing
from penstock.log.guard import Guard
from penstock.log.read import check_interval
from penstock.log.runs_async import AsyncRunsTransactions
from penstock.log.waiter_async import AsyncWaiter
from penstock.loops.concurrency_async import (
    IS_ASYNC,
    StopEvent,
    background,
    check_handler,
    is_coroutine_function,
    is_interrupt,
    run_handler,
    run_to_end,
    stopping_on_signals,
)
from penstock.loops.durations import Duration
from penstock.loops.failure_policy import FailurePolicy, checked_policy
from penstock.loops.outage import Outage
from penstock.loops.signals import this_process
from penstock.message import Message
from penstock.message.typed import TypedMessage, type_name

logger = logging.getLogger("penstock")

#: how many conflicts in a row, on one partition, count as a failure
MOST_CONFLICTS = 20
#: the partitions whose conflicts in a row are counted
MOST_COUNTED = 1_000

#: what a handler returns: the messages to append, or None
Outcome = Messages | AsyncIterable[Message | TypedMessage] | None
ClaimHandler = Callable[[Claim], Outcome | Awaitable[Outcome]]

_numbers = itertools.count(1)


class AsyncWorker:
    """Handles the partitions of a consumer group, one after the other. Run as many as you like.

    `handler` gets a claim and returns messages to append, or None. It should write nothing itself:
    what it returns is appended under the claim's guard, together with the acknowledgement. When it
    raises, the partition is tried again as `on_failure` says, and then parked with its error. So is
    one whose worker died or hung that often.

    A `Decider` in place of a handler gets the messages as commands, one after the other. Its state
    is that of the partition's messages of the types `decides_on`; each outcome changes it for the
    next command. All outcomes are appended at once, with the acknowledgement. When a command fails,
    the outcomes of those before it are appended, and it is tried again alone.

    The lease is extended for as long as the handler runs. Under asyncio this needs the event loop:
    a plain handler that blocks the loop for longer than the lease loses its claim.

    KeyboardInterrupt and SystemExit end the worker, and so does the cancellation of its task, where
    it runs in one. The partition can be claimed again at once.

    Ready partitions are handled in turn: one that has been handled goes behind all others that are
    ready. With `order="oldest"` the partition with the oldest unhandled message is always the next.
    """

    def __init__(
        self,
        store: AsyncRunsTransactions,
        group_id: str,
        handler: ClaimHandler | Decider[Any, Any],
        *,
        partition_by: str | Sequence[str],
        handled_types: Sequence[MessageType],
        decides_on: Sequence[MessageType] | None = None,
        worker_id: str | None = None,
        batch_size: int = 100,
        lease: Duration = 30.0,
        order: ClaimOrder = "round_robin",
        on_failure: FailurePolicy | None = None,
        polling_interval_ms: int = 100,
    ) -> None:
        _check_store(store)
        check_interval(polling_interval_ms)
        worker_id = f"{this_process()}:{next(_numbers)}" if worker_id is None else worker_id
        attributes = claims.partition_attributes(partition_by)
        self._store = store
        self._handle_claim = self._handling(handler, decides_on, attributes)
        self._claim_next = claims.claim_next(
            store.context,
            group_id,
            attributes,
            handled_types,
            worker_id,
            batch_size,
            lease,
            order,
            durable=False,
        )
        self.group_id = group_id
        self.worker_id = worker_id
        self._types = [type_name(one) for one in handled_types]
        self._lease = claims.checked_lease(lease)
        self._groups = AsyncGroups(store)
        self._policy = checked_policy(on_failure, FailurePolicy.park())
        if not self._policy.parks:
            raise ValidationError("on_failure", on_failure, "a FailurePolicy.park(...)")
        self._polling_interval = polling_interval_ms / 1000
        self._stopping = StopEvent()
        self._waiter = AsyncWaiter(store, [of_group(group_id), TYPES, *map(of_type, self._types)])
        self._was_idle = True
        self._in_hand: Claim | None = None  # its lease is extended
        self._outage = Outage(f"worker {worker_id}", logger)
        self._is_registered = False
        self._conflicts: dict[int, int] = {}  # in a row, by partition
        _warn_of_unindexed(attributes, handled_types)

    async def run(self) -> None:
        """Handle partitions as they become ready, until `stop()`, SIGTERM or SIGINT."""
        with stopping_on_signals(self.stop), self._waiter:
            async with self._extending_leases():
                while not self._stopping.is_set():
                    self._waiter.looks()
                    handled = await self._handle_next_or_wait()
                    due = None
                    if handled is None:  # tried again then, or when wake-ups arrive again
                        due = time.monotonic() + self._polling_interval
                    elif not handled and self._waiter.is_listening:
                        due = await self._next_due()
                    if not handled:
                        await self._waiter.sleep(self._polling_interval, due=due)

    async def run_until_idle(self) -> int:
        """Handle partitions until none is ready, and return how many claims were handled.

        A partition that waits for its next attempt is not ready. `stop()` and signals end it too.
        """
        handled = 0
        with stopping_on_signals(self.stop):
            async with self._extending_leases():
                while not self._stopping.is_set() and await self._handle_next():
                    handled += 1
        return handled

    async def run_once(self) -> bool:
        """Claim one partition and handle it. Return False if none was ready."""
        async with self._extending_leases():
            return await self._handle_next()

    async def _handle_next(self) -> bool:
        claim = await self._claim()
        if claim is None:
            return False
        if claim.attempts > self._policy.attempts:
            await self._fail(claim, RuntimeError("the workers that claimed it died, or hung"))
        elif claim.undecodable is not None and not claim.messages:
            await self._fail(claim, claim.undecodable)
        else:
            await self._handle(claim)
        return True

    def stop(self) -> None:
        """End `run()` and `run_until_idle()` after the claim in hand.

        A signal handler and any thread may call it; of an async worker, the loop's thread only.
        """
        self._stopping.set()
        self._waiter.stop()

    async def _handle_next_or_wait(self) -> bool | None:
        """Handle one partition, as `run_once` does. If it is not possible, log why; return None."""
        try:
            with self._outage.tolerated():
                return await self._handle_next()
        except IndexingUnfinished as error:
            logger.warning("worker %s waits: %s", self.worker_id, error)
        return None

    async def _next_due(self) -> float | None:
        """Return when the next lease or delay of the group ends, by the monotonic clock."""
        try:
            seconds = await self._store.run(claims.next_due(self.group_id))
        except UnavailableError:
            seconds = self._polling_interval
        return None if seconds is None else time.monotonic() + seconds

    async def _claim(self) -> Claim | None:
        if not self._is_registered:
            await self._groups.register(self.group_id)
            self._is_registered = True
        await declare_missing(self._store, known_classes(self._types))
        claim = await self._store.run(self._claim_next)
        if claim is not None and self._was_idle:
            # others may have looked while this claim was routing what was written
            self._store.context.notify([of_group(self.group_id)])
        self._was_idle = claim is None
        return claim

    async def _handle(self, claim: Claim) -> None:
        try:
            self._in_hand = claim
            try:
                await self._handle_claim(claim)
            finally:
                self._in_hand = None
            self._conflicts.pop(claim.offset_id, None)
        except StaleClaim as error:
            logger.warning("worker %s: %s", self.worker_id, error)
        except ConcurrencyError as error:
            await self._decide_again(claim, error)
        except NOT_THE_HANDLER:
            with suppress(UnavailableError):
                await self._give_back(claim)
            raise
        except SystemExit as error:
            with suppress(Exception):
                await self._fail(claim, error, at_once=True)
            raise
        except BaseException as error:  # a CancelledError or GeneratorExit may be the handler's own
            if not is_interrupt(error):
                await self._fail(claim, error)
                return
            with suppress(Exception):
                await self._give_back(claim)
            raise

    def _handling(
        self,
        handler: ClaimHandler | Decider[Any, Any],
        decides_on: Sequence[MessageType] | None,
        attributes: Sequence[str],
    ) -> Callable[[Claim], Awaitable[None]]:
        """Return what handles a claim and settles it."""
        if isinstance(handler, Decider):
            decider = PartitionDecider(handler, decides_on, attributes)
            return partial(decide_claim, self._store, decider, self._settle)
        check_handler(handler, "Worker")
        if decides_on is not None:
            raise ValidationError("decides_on", decides_on, "given together with a Decider only")
        return partial(self._call, handler)

    async def _call(self, handler: ClaimHandler, claim: Claim) -> None:
        messages = await _listed(await run_handler(handler, claim))
        await self._settle(claim, messages, claim.guard)

    async def _settle(
        self,
        claim: Claim,
        messages: list[Message | TypedMessage],
        guard: Guard,
        position: int | None = None,
    ) -> None:
        """Append an outcome and acknowledge the claim, up to a position, in one transaction."""
        await declare_missing(self._store, classes_of(messages))  # not from within a transaction
        async with self._store.transaction() as transaction:
            if messages:
                await transaction.append(messages, guard=guard)
            await transaction.groups.ack(claim, position)

    async def _decide_again(self, claim: Claim, error: ConcurrencyError) -> None:
        """Give the partition back: at first without delay, then with one, so that others go first.

        A conflict is not a failure, unless there is one at every attempt.
        """
        conflicts = self._conflicts.pop(claim.offset_id, 0) + 1
        self._conflicts[claim.offset_id] = conflicts
        if len(self._conflicts) > MOST_COUNTED:  # the oldest: probably handled by another worker
            del self._conflicts[next(iter(self._conflicts))]
        if conflicts > MOST_CONFLICTS:
            await self._fail(claim, error)
        else:
            logger.info("worker %s decides again: %s", self.worker_id, error)
            await self._give_back(claim, 0.0 if conflicts == 1 else self._policy.pause(1))

    async def _fail(self, claim: Claim, error: BaseException, *, at_once: bool = False) -> None:
        park = claim.attempts >= self._policy.attempts
        reason = f"{type(error).__name__}: {first_line(error)}"
        logger.warning(
            "worker %s: attempt %d on %s failed%s: %s",
            self.worker_id,
            claim.attempts,
            claim.partition_key,
            ", so it is parked" if park else "",
            reason,
        )
        pause = 0.0 if at_once else self._policy.pause(claim.attempts)
        await self._give_back(claim, pause, reason, park)

    async def _give_back(
        self, claim: Claim, delay: float = 0.0, error: str | None = None, park: bool = False
    ) -> None:
        try:
            await run_to_end(
                lambda: self._groups.release(claim, delay=delay, error=error, park=park)
            )
        except StaleClaim as stale:
            logger.warning("worker %s: %s", self.worker_id, stale)

    def _extending_leases(self) -> AbstractAsyncContextManager[None]:
        """Extend the lease of the claim in hand, three times in a lease, while the block runs."""

        async def extend(done: StopEvent) -> None:
            while not await done.wait_for(self._lease / 3):
                claim = self._in_hand
                if claim is not None:
                    await self._extend(claim)

        return background(extend, f"leases of {self.worker_id}")

    async def _extend(self, claim: Claim) -> None:
        try:
            await self._groups.extend(claim, self._lease)
        except StaleClaim:  # so is its acknowledgement, unless that has come first
            if self._in_hand is claim:
                self._in_hand = None
        except Exception as error:
            logger.warning("worker %s cannot extend its lease: %s", self.worker_id, error)


async def _listed(outcome: Outcome) -> list[Message | TypedMessage]:
    if outcome is None:
        return []
    if isinstance(outcome, AsyncIterable):
        return [one async for one in outcome]
    return several(outcome)


def _check_store(store: AsyncRunsTransactions) -> None:
    run = getattr(store, "run", None)
    if not hasattr(store, "transaction") or is_coroutine_function(run) != IS_ASYNC:
        raise ValidationError("store", store, "a store that penstock.connect_async() returned")


def _warn_of_unindexed(attributes: Iterable[str], handled_types: Sequence[MessageType]) -> None:
    """Warn of attributes that no handled class indexes: a typing error would go unnoticed."""
    classes = [one for one in handled_types if not isinstance(one, str)]
    indexed = {name for one in classes for name in one.indexed_attribute_names}
    missing = [name for name in attributes if name not in indexed]
    if missing and len(classes) == len(handled_types):
        logger.warning(
            "no handled type indexes %s: a partition is created by a message that has all "
            "attributes of partition_by",
            ", ".join(missing),
        )
