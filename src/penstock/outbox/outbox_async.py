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
    TopicState,
    ids_by_token,
    refuse_stale,
)
from penstock.outbox.payload import Payload

Claimed = ClaimedMessage | Iterable[ClaimedMessage]


class AsyncOutbox:
    """Messages to handle after the transaction that enqueued them has committed."""

    def __init__(self, runner: AsyncRuns) -> None:
        self._runner = runner

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
        ids = await self._runner.run(operations.enqueue(self._runner.context, [message], joins))
        return ids[0]

    async def enqueue_many(
        self, messages: Iterable[NewMessage], *, joins: Iterable[JoinId | str] = ()
    ) -> list[OutboxMessageId]:
        """Put several messages into the outbox, all or none, and return their ids in order."""
        return await self._runner.run(operations.enqueue(self._runner.context, messages, joins))

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
        return await self._runner.run(
            operations.claim(self._runner.context, owner, limit, lease, topics)
        )

    async def ack(self, messages: Claimed) -> None:
        """Acknowledge claimed messages: they are done. Joins count them in the same transaction.

        Raises `StaleLease` with the ids of those whose lease has ended, if any; they stay as they
        are.
        """
        stale: list[UUID] = []
        for token, ids in ids_by_token(messages):
            stale += await self._runner.run(operations.finish(ids, token, "done"))
        refuse_stale(stale)

    async def fail(self, messages: Claimed, error: str) -> None:
        """Fail claimed messages for good. Joins count them in the same transaction."""
        stale: list[UUID] = []
        for token, ids in ids_by_token(messages):
            stale += await self._runner.run(operations.finish(ids, token, "failed", error))
        refuse_stale(stale)

    async def abandon(
        self, messages: Claimed, delay: Duration = 0.0, error: str | None = None
    ) -> None:
        """Give claimed messages back, to be claimed again after `delay` seconds."""
        stale: list[UUID] = []
        for token, ids in ids_by_token(messages):
            stale += await self._runner.run(operations.abandon(ids, token, delay, error))
        refuse_stale(stale)

    async def extend(self, messages: Claimed, lease: Duration = 30.0) -> None:
        """Extend the lease of claimed messages to `lease` seconds from now."""
        stale: list[UUID] = []
        for token, ids in ids_by_token(messages):
            stale += await self._runner.run(operations.extend(ids, token, lease))
        refuse_stale(stale)

    async def reap_expired(self) -> int:
        """Make messages ready whose lease has ended, and return how many. Claims do so too."""
        return await self._runner.run(operations.reap(self._runner.context))

    async def get(self, id: OutboxMessageId | str) -> OutboxMessage:
        """Return a message, whatever its state, or raise `OutboxMessageNotFound`."""
        found = await self._runner.run(operations.get(self._runner.context, id))
        if found is None:
            raise OutboxMessageNotFound(str(id))
        return found

    async def list(
        self, *, topic: str | None = None, state: str | None = None, limit: int = 100
    ) -> Sequence[OutboxMessage]:
        """Return messages, oldest first, of a topic or in a state."""
        return await self._runner.run(operations.listing(self._runner.context, topic, state, limit))

    async def retry_failed(
        self, ids: Sequence[OutboxMessageId | str] | None = None, *, topic: str | None = None
    ) -> int:
        """Make failed messages ready again: these, those of a topic, or all. Return how many."""
        return await self._runner.run(operations.retry_failed(self._runner.context, ids, topic))

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
            batch = await self._runner.run(
                operations.clean_up(self._runner.context, older_than, batch_size, failed)
            )
            removed += batch.messages
            if max(batch.messages, batch.joins) < batch_size:
                return removed

    async def summary(self) -> Sequence[TopicState]:
        """Return how many messages there are by topic and state."""
        return await self._runner.run(operations.summary(self._runner.context))
