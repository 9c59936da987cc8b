"""Partitioned consumer groups, as methods of a store and of a transaction."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.groups import claims, groups
from penstock.groups.claims import Claim, ClaimOrder
from penstock.groups.groups import GroupStatus, ParkedPartition
from penstock.log.boundary import MessageType
from penstock.log.boundary_calls_async import AsyncBoundaryCalls
from penstock.log.declarations import known_classes
from penstock.log.declare_async import declare_missing
from penstock.loops.signals import this_process
from penstock.message.typed import type_name


class AsyncGroupCalls(AsyncBoundaryCalls):
    """Consumer groups: claim partitions, acknowledge and release them, and manage groups."""

    async def register_consumer_group(self, group_id: str) -> None:
        """Make a consumer group, active. Does nothing if it exists."""
        await self.run(groups.register(self.context, group_id))

    async def consumer_group_active(self, group_id: str) -> bool:
        """Return whether the group exists and gives out claims."""
        return await self.run(groups.is_active(self.context, group_id))

    async def stop_consumer_group(self, group_id: str) -> None:
        """Give out no more claims of this group; those in flight may finish."""
        await self.run(groups.stop(self.context, group_id))

    async def start_consumer_group(self, group_id: str) -> None:
        """Give out claims of this group again."""
        await self.run(groups.start(self.context, group_id))

    async def reset_consumer_group(self, group_id: str) -> None:
        """Forget all offsets: every partition starts again, and claims in flight become stale."""
        await self.run(groups.reset(self.context, group_id))

    async def clear_consumer_groups(self) -> None:
        """Remove all consumer groups with their offsets. For tests."""
        await self.run(groups.clear(self.context))

    async def claim_next(
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
        """Claim the partition whose first unhandled message is the oldest; None if none is ready.

        A partition is one combination of the values of `partition_by`; it comes to be with the
        first message that has all of them. The claim has the partition's unhandled messages of
        `handled_types` (classes or type names), at most `batch_size`, and a guard. It is yours for
        `lease` seconds; `ack`, `release` or `extend` it before that.

        With `order="round_robin"` the partition goes behind all others that are ready when it is
        given back, however old its next message is: a hot partition does not hold up the others.
        """
        operation = claims.claim_next(
            self.context,
            group_id,
            partition_by=partition_by,
            handled_types=handled_types,
            worker_id=worker_id or this_process(),
            batch_size=batch_size,
            lease=lease,
            order=order,
        )
        await declare_missing(self, known_classes(type_name(one) for one in handled_types))
        return await self.run(operation)

    async def ack(self, claim: Claim, position: int | None = None) -> None:
        """Note that the claim's messages up to `position` (default: all) are done; give it back.

        Raises `StaleClaim`, and changes nothing, if the claim is not yours any more. The same call
        again, after a lost answer, does nothing: until somebody else's claim is given back.
        """
        await self.run(claims.ack(self.context, claim, position))

    async def release(
        self, claim: Claim, *, delay: float = 0.0, error: str | None = None, park: bool = False
    ) -> None:
        """Give the claim back as it was, to be claimed again at once or after `delay` seconds.

        With `park`, only after `resume_partitions`. `error` is kept for operators to see.
        """
        await self.run(claims.release(self.context, claim, delay=delay, error=error, park=park))

    async def extend(self, claim: Claim, lease: float = 30.0) -> None:
        """Keep the claim for another `lease` seconds from now."""
        await self.run(claims.extend(self.context, claim, lease))

    async def groups(self) -> list[GroupStatus]:
        """Return how all consumer groups stand."""
        return await self.run(groups.overview(self.context))

    async def parked_partitions(self, group_id: str) -> list[ParkedPartition]:
        """Return the partitions of a group that were set aside, with their errors."""
        return await self.run(groups.parked(self.context, group_id))

    async def resume_partitions(self, group_id: str, partition_key: str | None = None) -> int:
        """Let one parked partition go on, or all of the group, and return how many."""
        return await self.run(groups.resume(self.context, group_id, partition_key))
