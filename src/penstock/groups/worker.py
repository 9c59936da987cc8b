"""A worker: claim a partition, handle its messages, append the outcome and acknowledge, at once.

The promise: every message of every partition is handled in order, at least once, by one worker at a
time; and what a handler returns is appended exactly once, under the partition's guard, in the same
transaction as the acknowledgement. If somebody else wrote to the boundary meanwhile, nothing is
appended and the partition is claimed again, with what is true then.

A worker that dies loses its claim when the lease ends; while it lives, the lease is extended. A
partition that keeps failing is parked, alone; the others go on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Protocol

from penstock.errors import (
    AuthenticationFailed,
    ConcurrencyError,
    DatabaseUnreachable,
    DeclarationBlocked,
    IndexingUnfinished,
    PoolExhausted,
    StaleClaim,
    UnavailableError,
    ValidationError,
    first_line,
)
from penstock.groups.claims import (
    Claim,
    ClaimOrder,
    as_lease,
    check_batch_size,
    check_order,
    partition_attributes,
)
from penstock.log import paging
from penstock.log.boundary import MessageType, check_types
from penstock.log.declarations import classes_of
from penstock.log.declare import declare_missing
from penstock.log.runs import Runs
from penstock.loops.concurrency import is_coroutine_function
from penstock.loops.failure_policy import FailurePolicy, checked_policy
from penstock.loops.outage import Outage
from penstock.loops.signals import StopEvent, stopping_on_signals, this_process
from penstock.message import Message, check_text
from penstock.message.typed import TypedMessage

logger = logging.getLogger("penstock")

#: how often in a row somebody else may have been quicker before that is a failure
MOST_CONFLICTS = 20

#: what may keep a handler from its work, so that it is tried again as if nothing had been
NOT_ITS_FAULT = (DatabaseUnreachable, PoolExhausted, DeclarationBlocked, IndexingUnfinished)

#: gets the claim, and returns the messages to append, or None
ClaimHandler = Callable[[Claim], Iterable[Message | TypedMessage] | Message | TypedMessage | None]


class GroupStore(Runs, Protocol):
    """What a worker needs of a store."""

    def register_consumer_group(self, group_id: str) -> None:
        """Make a consumer group."""

    def claim_next(
        self,
        group_id: str,
        *,
        partition_by: str | Sequence[str],
        handled_types: Sequence[MessageType],
        worker_id: str | None = None,
        batch_size: int = 100,
        lease: float = 30.0,
        order: ClaimOrder = "oldest",
    ) -> Claim | None:
        """Claim a partition."""

    def release(
        self, claim: Claim, *, delay: float = 0.0, error: str | None = None, park: bool = False
    ) -> None:
        """Give a claim back."""

    def extend(self, claim: Claim, lease: float = 30.0) -> None:
        """Keep a claim."""

    def transaction(self) -> AbstractContextManager[Any]:
        """Return a transaction for a `with` block."""


def _tell_of_unknown(attributes: Iterable[str], handled_types: Sequence[MessageType]) -> None:
    """Warn of attributes that no handled class indexes: misspelt, they never make a partition."""
    known = {
        name
        for one in handled_types
        if not isinstance(one, str)
        for name in one.indexed_attribute_names
    }
    unknown = [name for name in attributes if name not in known]
    if unknown and not any(isinstance(one, str) for one in handled_types):
        logger.warning(
            "no handled type indexes %s: a partition comes to be with a message that has all "
            "attributes of partition_by",
            ", ".join(unknown),
        )


class Worker:
    """Handles the partitions of a consumer group, one after the other. Run as many as you like.

    `handler` gets a claim and returns messages to append, or None. It should write nothing itself:
    what it returns is appended under the claim's guard, together with the acknowledgement. When it
    raises, the partition is tried again as `on_failure` says, and then parked with its error. So is
    one whose worker died or hung that often. SystemExit and KeyboardInterrupt end the worker; the
    partition can be claimed again at once.

    Partitions take turns: one that has been handled goes behind all others that are ready. With
    `order="oldest"` the partition with the oldest unhandled message is always the next.
    """

    def __init__(
        self,
        store: GroupStore,
        group_id: str,
        handler: ClaimHandler,
        *,
        partition_by: str | Sequence[str],
        handled_types: Sequence[MessageType],
        worker_id: str | None = None,
        batch_size: int = 100,
        lease: float = 30.0,
        order: ClaimOrder = "round_robin",
        on_failure: FailurePolicy | None = None,
        polling_interval_ms: int = 100,
    ) -> None:
        paging.check_interval(polling_interval_ms)
        if not callable(handler) or is_coroutine_function(handler):
            raise ValidationError("handler", handler, "a plain function")
        if not hasattr(store, "claim_next") or is_coroutine_function(store.claim_next):
            raise ValidationError("store", store, "a Store")
        if worker_id is not None:
            check_text("worker_id", worker_id)
        check_batch_size(batch_size)
        attributes = partition_attributes(partition_by)
        check_types(handled_types)
        as_lease(lease)
        check_order(order)
        _tell_of_unknown(attributes, handled_types)
        self._store = store
        self.group_id = group_id
        self._handler = handler
        self._partition_by = partition_by
        self._handled_types = handled_types
        self.worker_id = worker_id or f"{this_process()}:{threading.get_ident()}"
        self._batch_size = batch_size
        self._lease = lease
        self._order: ClaimOrder = order
        self._policy = checked_policy(on_failure, FailurePolicy.park())
        if not self._policy.parks:
            raise ValidationError("on_failure", on_failure, "a FailurePolicy.park(...)")
        self._polling_interval = polling_interval_ms / 1000
        self._stopping = StopEvent()
        self._outage = Outage(f"worker {self.worker_id}", logger)
        self._conflicts: dict[int, int] = {}  # one after the other, by the last partitions
        store.register_consumer_group(group_id)

    def run(self) -> None:
        """Handle partitions as they become ready, until `stop()`, SIGTERM or SIGINT."""
        with stopping_on_signals(self.stop):
            while not self._stopping.is_set():
                try:
                    busy = self.run_once()
                    self._outage.is_over()
                except AuthenticationFailed:
                    raise
                except UnavailableError as error:
                    self._outage.goes_on(error)
                    busy = False
                except (*NOT_ITS_FAULT, ConcurrencyError) as error:
                    logger.warning("worker %s waits: %s", self.worker_id, error)
                    busy = False
                if not busy:
                    self._stopping.wait_for(self._polling_interval)

    def run_once(self) -> bool:
        """Claim one partition and handle it. Return False if there was nothing to do."""
        claim = self._store.claim_next(
            self.group_id,
            partition_by=self._partition_by,
            handled_types=self._handled_types,
            worker_id=self.worker_id,
            batch_size=self._batch_size,
            lease=self._lease,
            order=self._order,
        )
        if claim is None:
            return False
        if claim.attempts > self._policy.attempts:
            self._fail(claim, RuntimeError("the workers that claimed it died, or hung"))
            return True
        if not claim.messages and claim.undecodable:
            self._fail(claim, claim.undecodable)
            return True
        try:
            with self._kept_alive(claim):
                self._settle(claim, self._handler(claim))
            self._conflicts.pop(claim.offset_id, None)
        except StaleClaim as error:
            logger.warning("worker %s: %s", self.worker_id, error)
        except ConcurrencyError as error:
            self._decide_again(claim, error)
        except NOT_ITS_FAULT:
            with suppress(UnavailableError):
                self._give_back(claim)
            raise
        except KeyboardInterrupt:
            with suppress(Exception):
                self._give_back(claim)
            raise
        except SystemExit as error:
            with suppress(Exception):
                self._fail(claim, error, at_once=True)
            raise
        except BaseException as error:  # a CancelledError or GeneratorExit is the handler's own
            self._fail(claim, error)
        return True

    def stop(self) -> None:
        """End `run()` after the claim in hand. Any thread, and a signal handler, may call it."""
        self._stopping.set()

    def _settle(
        self,
        claim: Claim,
        outcome: Iterable[Message | TypedMessage] | Message | TypedMessage | None,
    ) -> None:
        messages = _listed(outcome)
        declare_missing(self._store, classes_of(messages))  # not from within a transaction
        with self._store.transaction() as transaction:
            if messages:
                transaction.append(messages, guard=claim.guard)
            transaction.ack(claim)

    def _decide_again(self, claim: Claim, error: ConcurrencyError) -> None:
        """Give the partition back: at first for at once, then so that others have their turn.

        Somebody else was quicker, which is no failure, unless it never ends.
        """
        conflicts = self._conflicts.pop(claim.offset_id, 0) + 1
        self._conflicts[claim.offset_id] = conflicts
        if len(self._conflicts) > 1_000:  # the oldest: most likely another worker has finished it
            del self._conflicts[next(iter(self._conflicts))]
        if conflicts > MOST_CONFLICTS:
            self._fail(claim, error)
        else:
            logger.info("worker %s decides again: %s", self.worker_id, error)
            self._give_back(claim, 0.0 if conflicts == 1 else self._policy.pause(1))

    def _fail(self, claim: Claim, error: BaseException, *, at_once: bool = False) -> None:
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
        self._give_back(claim, pause, reason, park)

    def _give_back(
        self, claim: Claim, delay: float = 0.0, error: str | None = None, park: bool = False
    ) -> None:
        try:
            self._store.release(claim, delay=delay, error=error, park=park)
        except StaleClaim as stale:
            logger.warning("worker %s: %s", self.worker_id, stale)

    @contextmanager
    def _kept_alive(self, claim: Claim) -> Iterator[None]:
        """Extend the lease from a thread of its own for as long as the block runs."""
        done = threading.Event()

        def keep() -> None:
            while not done.wait(self._lease / 3):
                try:
                    self._store.extend(claim, self._lease)
                except StaleClaim:
                    return
                except Exception as error:
                    logger.warning("worker %s cannot extend its lease: %s", self.worker_id, error)

        keeper = threading.Thread(target=keep, name=f"lease of {claim.offset_id}", daemon=True)
        keeper.start()
        try:
            yield
        finally:
            done.set()
            keeper.join()


def _listed(
    outcome: Iterable[Message | TypedMessage] | Message | TypedMessage | None,
) -> list[Message | TypedMessage]:
    if outcome is None:
        return []
    return [outcome] if isinstance(outcome, Message | TypedMessage) else list(outcome)
