"""The transactional outbox: `store.outbox`.

In a transaction (`tx.outbox`) and on a connection of your own, its calls are part of that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from penstock.errors import OutboxMessageNotFound
from penstock.log.runs_async import AsyncRuns
from penstock.loops.durations import Duration
from penstock.outbox import operations
from penstock.outbox.messages import (
    ClaimedMessage,
    JoinId,
    NewMessage,
    OutboxMessage,
    OutboxMessageId,
    Payload,
    TopicState,
)
from penstock.outbox.operations import Claimed, refuse_stale


class AsyncOutbox:
    """Messages to handle after the transaction that enqueued them has committed."""

    def __init__(self, runner: AsyncRuns) -> None:
        runner.context.require_penstock("the outbox")
        self._run = runner.run

    async def enqueue(
        self,
        topic: str,
        payload: Payload = None,
        *,
        due: datetime | None = None,
        correlation_id: str | None = None,
        id: UUID | str | None = None,
        dedupe_key: str | None = None,
        joins: Iterable[JoinId | str] = (),
    ) -> OutboxMessageId:
        """Put a message into the outbox and return its id.

        It is handled from `due` on, at once by default. With a known `id`, or a `dedupe_key` that
        the topic has seen, nothing is added and the first message's id is returned. `joins` makes
        it a member of these joins in the same transaction.
        """
        message = NewMessage(topic, payload, due, correlation_id, id, dedupe_key)
        [added] = await self._run(operations.enqueue([message], joins))
        return added

    async def enqueue_many(
        self, messages: Iterable[NewMessage], *, joins: Iterable[JoinId | str] = ()
    ) -> list[OutboxMessageId]:
        """Put several messages into the outbox, all or none, and return their ids in order."""
        return await self._run(operations.enqueue(messages, joins))

    async def claim(
        self,
        owner: str,
        limit: int = 1,
        lease: Duration = 30.0,
        *,
        topics: Iterable[str] | None = None,
    ) -> list[ClaimedMessage]:
        """Claim due messages, oldest first, for `lease` seconds: of these topics, or of all.

        Until the lease ends, no other owner can claim them.
        """
        return await self._run(operations.claim(owner, limit, lease, topics))

    async def ack(self, messages: Claimed) -> None:
        """Acknowledge claimed messages: they are done. Joins count them in the same transaction.

        Raises `StaleLease` with the ids of those whose lease has ended, if any; they stay as they
        are.
        """
        finished = operations.waking_joins(operations.acknowledge(messages))
        refuse_stale([await self._run(one) for one in finished])

    async def fail(self, messages: Claimed, error: str) -> None:
        """Fail claimed messages for good. Joins count them in the same transaction."""
        finished = operations.waking_joins(operations.fail(messages, error))
        refuse_stale([await self._run(one) for one in finished])

    async def abandon(
        self, messages: Claimed, delay: Duration = 0.0, error: str | None = None
    ) -> None:
        """Give claimed messages back, to be claimed again after `delay` seconds."""
        refuse_stale([await self._run(one) for one in operations.abandon(messages, delay, error)])

    async def extend(self, messages: Claimed, lease: Duration = 30.0) -> None:
        """Extend the lease of claimed messages to `lease` seconds from now."""
        refuse_stale([await self._run(one) for one in operations.extend(messages, lease)])

    async def reap_expired(self) -> int:
        """Make messages ready whose lease has ended, and return how many. Claims do so too."""
        return await self._run(operations.reap())

    async def get(self, id: OutboxMessageId | str) -> OutboxMessage:
        """Return a message, whatever its state, or raise `OutboxMessageNotFound`."""
        found = await self._run(operations.get(id))
        if found is None:
            raise OutboxMessageNotFound(str(id))
        return found

    async def list(
        self, *, topic: str | None = None, state: str | None = None, limit: int = 100
    ) -> Sequence[OutboxMessage]:
        """Return messages, oldest first, of a topic or in a state."""
        return await self._run(operations.listing(topic, state, limit))

    async def retry_failed(
        self, ids: Sequence[OutboxMessageId | str] | None = None, *, topic: str | None = None
    ) -> int:
        """Make failed messages ready again: these, those of a topic, or all. Return how many."""
        return await self._run(operations.retry_failed(ids, topic))

    async def clean_up(
        self,
        older_than: Duration = timedelta(days=7),
        *,
        failed: bool = False,
        batch_size: int = 10_000,
    ) -> int:
        """Remove messages that were done, and joins that were resolved, longer ago than that.

        With `failed` also messages that failed. Returns how many messages were removed, in
        transactions of `batch_size` each.
        """
        removed = 0
        while True:
            messages, joins = await self._run(operations.clean_up(older_than, batch_size, failed))
            removed += messages
            if max(messages, joins) < batch_size:
                return removed

    async def summary(self) -> Sequence[TopicState]:
        """Return how many messages there are by topic and state."""
        return await self._run(operations.summary())
