"""The leases that a dispatcher holds: extended while handlers run, ended by what comes of them.

A message is acknowledged, failed, or given back under the token of its claim. Each call is tried
again if that may help. What cannot be done even then is left: the lease ends, and the message
comes again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from uuid import UUID

from penstock.errors import PermanentFailure, StaleLease, first_line
from penstock.log.runs_async import AsyncRuns
from penstock.loops.failure_policy import FailurePolicy
from penstock.loops.outage import Outage
from penstock.loops.retry import retry
from penstock.outbox import operations
from penstock.outbox.messages import ClaimedMessage, ids_by_token

logger = logging.getLogger("penstock")


class AsyncLeases:
    """Extends and ends the leases of one owner in one store."""

    def __init__(self, store: AsyncRuns, owner: str, lease: float, outage: Outage) -> None:
        self._store = store
        self._owner = owner
        self._lease = lease
        self._outage = outage

    async def extend(self, messages: Iterable[ClaimedMessage]) -> None:
        """Extend the leases of these messages. This alone is tried once, and may raise."""
        for token, ids in ids_by_token(messages):
            await self._store.run(operations.extend(ids, token, self._lease))

    async def acknowledge(self, messages: Iterable[ClaimedMessage]) -> None:
        """Acknowledge messages whose handlers have returned."""
        for token, ids in ids_by_token(messages):
            with self._outage.tolerated():
                await retry(self._acknowledge)(ids, token)

    async def give_back(self, messages: Iterable[ClaimedMessage]) -> None:
        """Return messages as they were before the claim: no attempt is used up."""
        for token, ids in ids_by_token(messages):
            with self._outage.tolerated():
                await retry(self._give_back)(ids, token)

    async def fail(
        self, message: ClaimedMessage, error: BaseException, policy: FailurePolicy
    ) -> None:
        """Have a message tried again later or, after its last attempt, fail it for good."""
        with self._outage.tolerated():
            await retry(self._fail)(message, error, policy)

    async def _acknowledge(self, ids: list[UUID], token: UUID) -> None:
        stale = await self._store.run(operations.finish(ids, token, "done"))
        if stale:
            logger.warning("dispatcher %s: the leases of %s had ended", self._owner, stale)

    async def _give_back(self, ids: list[UUID], token: UUID) -> None:
        await self._store.run(operations.give_back(ids, token))

    async def _fail(
        self, message: ClaimedMessage, error: BaseException, policy: FailurePolicy
    ) -> None:
        reason = f"{type(error).__name__}: {first_line(error)}"
        lease = [message.id], message.token
        if isinstance(error, StaleLease) and str(message.id) in error.message_ids:
            logger.warning("dispatcher %s: %s", self._owner, error)
            return
        if not isinstance(error, PermanentFailure):
            self._warn_of_failure(message, policy, reason)
            if message.attempts < policy.attempts:
                pause = policy.pause(message.attempts)
                await self._store.run(operations.abandon(*lease, pause, reason))
                return
        await self._store.run(operations.finish(*lease, "failed", reason))

    def _warn_of_failure(self, message: ClaimedMessage, policy: FailurePolicy, reason: str) -> None:
        logger.warning(
            "dispatcher %s: attempt %d of %d on %s %s failed: %s",
            self._owner,
            message.attempts,
            policy.attempts,
            message.topic,
            message.id,
            reason,
        )
