"""Joins: `store.joins`. A join enqueues a message when a set of outbox messages is finished.

In a transaction (`tx.joins`) and on a connection of your own, the calls are part of that.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import JoinNotFound
from penstock.log.runs_async import AsyncRuns
from penstock.loops.durations import Duration
from penstock.outbox import join_operations as operations
from penstock.outbox.join_operations import Join, JoinMember
from penstock.outbox.messages import JoinId, OutboxMessageId, Payload


class AsyncJoins:
    """Count the steps of joins, and enqueue what follows."""

    def __init__(self, runner: AsyncRuns) -> None:
        runner.context.require_penstock("the outbox")
        self._run = runner.run

    async def start(
        self,
        grouping_key: str | None,
        expected_steps: int,
        metadata: str | None = None,
        *,
        timeout: Duration | None = None,
    ) -> JoinId:
        """Create a join that expects a number of steps, and return its id.

        With a `timeout`, in seconds, a join that is not complete by then fails.
        """
        return await self._run(operations.start(grouping_key, expected_steps, metadata, timeout))

    async def attach(self, join_id: JoinId | str, outbox_message_id: OutboxMessageId | str) -> None:
        """Make a message a step of a join. One that is finished counts at once.

        To attach a message again changes nothing.
        """
        await self._run(operations.attach(join_id, outbox_message_id))

    async def report_completed(
        self, join_id: JoinId | str, outbox_message_id: OutboxMessageId | str
    ) -> None:
        """Count a step as completed, for work that is done elsewhere. Its first outcome stands."""
        await self._run(operations.report(join_id, outbox_message_id, "done"))

    async def report_failed(
        self, join_id: JoinId | str, outbox_message_id: OutboxMessageId | str
    ) -> None:
        """Count a step as failed, for work that is done elsewhere. Its first outcome stands."""
        await self._run(operations.report(join_id, outbox_message_id, "failed"))

    async def enqueue_wait(
        self,
        join_id: JoinId | str,
        fail_if_any_step_failed: bool = True,
        on_complete_topic: str | None = None,
        on_complete_payload: Payload = None,
        on_fail_topic: str | None = None,
        on_fail_payload: Payload = None,
    ) -> OutboxMessageId:
        """Enqueue a message of one topic when the join succeeds, of the other when it fails.

        This adds a message that a dispatcher handles when the last step is finished; its id is
        returned.
        """
        return await self._run(
            operations.enqueue_wait(
                join_id,
                fail_if_any_step_failed,
                (on_complete_topic, on_complete_payload),
                (on_fail_topic, on_fail_payload),
            )
        )

    async def cancel(self, join_id: JoinId | str) -> None:
        """Cancel a join for good: no message follows."""
        await self._run(operations.cancel(join_id))

    async def get(self, join_id: JoinId | str) -> Join:
        """Return a join, or raise `JoinNotFound`."""
        found = await self._run(operations.get(join_id))
        if found is None:
            raise JoinNotFound(str(join_id))
        return found

    async def list(
        self, *, grouping_key: str | None = None, status: str | None = None, limit: int = 100
    ) -> Sequence[Join]:
        """Return joins, oldest first, of a grouping key or with a status."""
        return await self._run(operations.listing(grouping_key, status, limit))

    async def members(self, join_id: JoinId | str) -> Sequence[JoinMember]:
        """Return the members of a join and their outcomes."""
        await self.get(join_id)
        return await self._run(operations.members(join_id))
