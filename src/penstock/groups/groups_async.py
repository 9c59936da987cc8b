"""Partitioned consumer groups: `store.groups`.

In a transaction (`tx.groups`) and on a connection of your own they are part of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.groups import claims, operations
from penstock.groups.claims import Claim, ClaimOrder
from penstock.groups.operations import GroupStatus, Leftover, ParkedPartition
from penstock.log.boundary import MessageType, known_classes
from penstock.log.declare_async import declare_missing
from penstock.log.runs_async import AsyncRuns
from penstock.loops.durations import Duration
from penstock.loops.signals import this_process
from penstock.message.typed import type_name

BATCH_SIZE = 10_000  # rows of a removed group that are deleted in one transaction


class AsyncGroups:
    """Consumer groups: manage them, and claim, acknowledge and release their partitions."""

    def __init__(self, runs: AsyncRuns) -> None:
        self._runs = runs

    async def register(self, group_id: str) -> None:
        """Create a consumer group, active. Does nothing if it exists."""
        await self._change("register_consumer_group", group_id)

    async def is_active(self, group_id: str) -> bool:
        """Return whether the group exists and gives out claims."""
        return await self._runs.run(operations.is_active(self._runs.context, group_id))

    async def stop(self, group_id: str) -> None:
        """Give out no more claims of this group. Claims in flight can still be acknowledged."""
        await self._change("stop_consumer_group", group_id)

    async def start(self, group_id: str) -> None:
        """Give out claims of this group again."""
        await self._change("start_consumer_group", group_id)

    async def reset(self, group_id: str) -> None:
        """Delete all offsets: every partition starts again, and claims in flight become stale."""
        await self._change("reset_consumer_group", group_id)

    async def remove(self, group_id: str, *, batch_size: int = BATCH_SIZE) -> None:
        """Remove a group: retention no longer keeps what it has not handled.

        At once: its workers get `GroupNotFound` at their next claim or acknowledgement. Its
        partitions and feeds are then deleted in transactions of at most `batch_size` rows. A worker
        that is started later registers a new group, which begins at the start of the log.
        """
        await self._change("remove_consumer_group", group_id)
        leftover = await self._runs.run(operations.delete_leftover(Leftover(), batch_size))
        while leftover.group_pk is not None:
            leftover = await self._runs.run(operations.delete_leftover(leftover, batch_size))

    async def clear(self) -> None:
        """Delete all consumer groups with their offsets. For tests."""
        await self._runs.run(operations.clear())

    async def claim_next(
        self,
        group_id: str,
        *,
        partition_by: str | Sequence[str],
        handled_types: Sequence[MessageType],
        worker_id: str | None = None,
        batch_size: int = 100,
        lease: Duration = 30.0,
        order: ClaimOrder = "oldest",
    ) -> Claim | None:
        """Claim the partition whose first unhandled message is the oldest; None if none is ready.

        A partition is one combination of the values of `partition_by`. It is created by the first
        message that has all of them. The claim has the partition's unhandled messages of
        `handled_types` (classes or type names), at most `batch_size`, and a guard. It is yours for
        `lease` (seconds or a timedelta); `ack`, `release` or `extend` it before that.

        With `order="round_robin"` a partition that is given back goes behind all others that are
        ready, however old its next message is: a hot partition does not delay the others.
        """
        context = self._runs.context
        context.require_penstock("a consumer group")
        worker_id = worker_id or this_process()
        operation = claims.claim_next(
            context, group_id, partition_by, handled_types, worker_id, batch_size, lease, order
        )
        await declare_missing(self._runs, known_classes(type_name(one) for one in handled_types))
        return await self._runs.run(operation)

    async def ack(self, claim: Claim, position: int | None = None) -> None:
        """Mark the claim's messages up to `position` (default: all) as handled; give it back.

        Raises `StaleClaim`, and changes nothing, if the claim is no longer yours. The same call
        again, after a lost answer, does nothing: until a later claim of the partition is given
        back.
        """
        await self._runs.run(claims.ack(claim, position))

    async def release(
        self, claim: Claim, *, delay: Duration = 0.0, error: str | None = None, park: bool = False
    ) -> None:
        """Give the claim back unhandled, to be claimed again after `delay` (default: at once).

        With `park`, only after `resume`. `error` is kept for operators to see.
        """
        await self._runs.run(claims.release(claim, delay=delay, error=error, park=park))

    async def extend(self, claim: Claim, lease: Duration = 30.0) -> None:
        """Keep the claim for another `lease` from now."""
        await self._runs.run(claims.extend(claim, lease))

    async def list(
        self, count_up_to: int = 10_000, *, after: str = "", limit: int = 1_000
    ) -> Sequence[GroupStatus]:
        """Return the state of consumer groups.

        They are sorted by id, at most `limit` after that of `after`. Partitions are counted up to
        `count_up_to`, which limits the cost.
        """
        return await self._runs.run(
            operations.listing(self._runs.context, count_up_to, after, limit)
        )

    async def parked(self, group_id: str) -> Sequence[ParkedPartition]:
        """Return the parked partitions of a group, with their errors."""
        return await self._runs.run(operations.parked(self._runs.context, group_id))

    async def resume(self, group_id: str, partition_key: str | None = None) -> int:
        """Resume one parked partition, or all of the group, and return how many."""
        return await self._runs.run(operations.resume(self._runs.context, group_id, partition_key))

    async def _change(self, name: str, group_id: str) -> None:
        await self._runs.run(operations.change(self._runs.context, name, group_id))
