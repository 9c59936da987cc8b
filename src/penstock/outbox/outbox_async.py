"""The outbox and its joins: `store.outbox` and `store.joins`.

In a transaction (`tx.outbox`, `tx.joins`) and on a connection of your own they are part of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from penstock.errors import JoinNotFound, OutboxMessageNotFound
from penstock.log.runs_async import AsyncRuns
from penstock.outbox import joins as join_operations
from penstock.outbox import operations
from penstock.outbox.joins import Join, JoinMember, Wait
from penstock.outbox.leases import Held, by_token, refuse_stale
from penstock.outbox.messages import (
    ClaimedMessage,
    JoinId,
    NewMessage,
    OutboxMessage,
    OutboxMessageId,
    TopicState,
)
from penstock.outbox.payload import Payload

_BATCH = 10_000


class AsyncOutbox:
    """Messages to be handled later: enqueue, claim, acknowledge, look after."""

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
        return (await self.enqueue_many([message], joins=joins))[0]

    async def enqueue_many(
        self, several: Iterable[NewMessage], *, joins: Iterable[JoinId | str] = ()
    ) -> list[OutboxMessageId]:
        """Put several messages into the outbox, all or none, and return their ids in order."""
        return await self._runner.run(operations.enqueue(self._runner.context, several, joins))

    async def claim(
        self,
        owner: str,
        limit: int = 1,
        lease: float = 30.0,
        *,
        topics: Iterable[str] | None = None,
    ) -> list[ClaimedMessage]:
        """Claim due messages, oldest first, for `lease` seconds: of these topics, or of all."""
        return await self._runner.run(
            operations.claim(self._runner.context, owner, limit, lease, topics)
        )

    async def ack(self, held: Held) -> None:
        """Note that claimed messages were handled. Joins count them in the same transaction.

        Raises `StaleLease` with the ids, if any, that you do not hold any more; those are
        unchanged.
        """
        stale: list[UUID] = []
        for token, ids in by_token(held):
            stale += await self._runner.run(operations.finish(ids, token, "done"))
        refuse_stale(stale)

    async def fail(self, held: Held, error: str) -> None:
        """Note that claimed messages failed for good. Joins count them in the same transaction."""
        stale: list[UUID] = []
        for token, ids in by_token(held):
            stale += await self._runner.run(operations.finish(ids, token, "failed", error))
        refuse_stale(stale)

    async def abandon(self, held: Held, delay: float = 0.0, error: str | None = None) -> None:
        """Give claimed messages back, to be claimed again after `delay` seconds."""
        stale: list[UUID] = []
        for token, ids in by_token(held):
            stale += await self._runner.run(operations.abandon(ids, token, delay, error))
        refuse_stale(stale)

    async def extend(self, held: Held, lease: float = 30.0) -> None:
        """Hold claimed messages for another `lease` seconds from now."""
        stale: list[UUID] = []
        for token, ids in by_token(held):
            stale += await self._runner.run(operations.extend(ids, token, lease))
        refuse_stale(stale)

    async def reap_expired(self) -> int:
        """Make messages ready whose lease has ended, and return how many. Claims do so anyway."""
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
        self, older_than: timedelta = timedelta(days=7), *, failed: bool = False
    ) -> int:
        """Remove messages that were done, and joins that were resolved, longer ago than that.

        With `failed` also messages that failed. Returns how many messages were removed.
        """
        removed = 0
        while True:
            batch = await self._runner.run(
                operations.clean_up(self._runner.context, older_than, _BATCH, failed)
            )
            removed += batch.messages
            if batch.messages < _BATCH and batch.joins < _BATCH:
                return removed

    async def summary(self) -> Sequence[TopicState]:
        """Return how many messages there are by topic and state."""
        return await self._runner.run(operations.summary(self._runner.context))


class AsyncJoins:
    """Know when a set of outbox messages is all done, and start what follows."""

    def __init__(self, runner: AsyncRuns) -> None:
        self._runner = runner

    async def start_join(
        self,
        grouping_key: str | None,
        expected_steps: int,
        metadata: str | None = None,
        *,
        timeout: float | None = None,
    ) -> JoinId:
        """Create a join that expects a number of steps, and return its id.

        With a `timeout`, in seconds, a join that is not complete by then fails.
        """
        return await self._runner.run(
            join_operations.start_join(
                self._runner.context, grouping_key, expected_steps, metadata, timeout
            )
        )

    async def attach_message_to_join(
        self, join_id: JoinId | str, outbox_message_id: OutboxMessageId | str
    ) -> None:
        """Make a message a member of a join. Twice is once; a finished one counts at once."""
        await self._runner.run(
            join_operations.attach(self._runner.context, join_id, outbox_message_id)
        )

    async def report_step_completed(
        self, join_id: JoinId | str, outbox_message_id: OutboxMessageId | str
    ) -> None:
        """Count a member as completed by hand, for work done elsewhere. First outcome stands."""
        await self._runner.run(
            join_operations.report(self._runner.context, join_id, outbox_message_id, "done")
        )

    async def report_step_failed(
        self, join_id: JoinId | str, outbox_message_id: OutboxMessageId | str
    ) -> None:
        """Count a member as failed by hand, for work done elsewhere. Its first outcome stands."""
        await self._runner.run(
            join_operations.report(self._runner.context, join_id, outbox_message_id, "failed")
        )

    async def enqueue_join_wait(
        self,
        join_id: JoinId | str,
        fail_if_any_step_failed: bool = True,
        on_complete_topic: str | None = None,
        on_complete_payload: Payload = None,
        on_fail_topic: str | None = None,
        on_fail_payload: Payload = None,
    ) -> OutboxMessageId:
        """Have a message enqueued when the join is complete: one topic if it succeeded, or another.

        A dispatcher resolves it; nobody polls meanwhile.
        """
        wait = Wait(
            str(join_id),
            fail_if_any_step_failed,
            on_complete_topic,
            on_complete_payload,
            on_fail_topic,
            on_fail_payload,
        )
        return await self._runner.run(
            join_operations.enqueue_wait(self._runner.context, join_id, wait)
        )

    async def cancel_join(self, join_id: JoinId | str) -> None:
        """Cancel a join for good: no follow-up will be enqueued."""
        await self._runner.run(join_operations.cancel(self._runner.context, join_id))

    async def get_join(self, join_id: JoinId | str) -> Join:
        """Return a join, or raise `JoinNotFound`."""
        found = await self._runner.run(join_operations.get(self._runner.context, join_id))
        if found is None:
            raise JoinNotFound(str(join_id))
        return found

    async def list_joins(
        self, *, grouping_key: str | None = None, status: str | None = None, limit: int = 100
    ) -> list[Join]:
        """Return joins, oldest first, of a grouping key or with a status."""
        return await self._runner.run(
            join_operations.listing(self._runner.context, grouping_key, status, limit)
        )

    async def members(self, join_id: JoinId | str) -> list[JoinMember]:
        """Return the members of a join and their outcomes."""
        await self.get_join(join_id)
        return await self._runner.run(join_operations.members(self._runner.context, join_id))
