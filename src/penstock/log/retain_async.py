"""Run a retention in batches, each in a transaction of its own."""

from __future__ import annotations

from collections.abc import Callable

from penstock.log.retention import (
    BATCH_SIZE,
    Keep,
    Retained,
    SlowestReader,
    find_bounds,
    remove_batch,
)
from penstock.log.runs_async import AsyncRuns


async def retain(
    store: AsyncRuns,
    target: str,
    keep: Keep,
    *,
    ignore_consumers: bool = False,
    progress: Callable[[int], None] = lambda removed: None,
    batch_size: int = BATCH_SIZE,
) -> Retained:
    """Remove all messages but those to keep, in transactions of at most `batch_size` messages.

    `progress` is called after each with the number of messages removed so far.
    """
    bounds = await store.run(find_bounds(store.context, target, keep, ignore_consumers))
    removed = 0
    held_back_by: SlowestReader | None = None
    walked_to: int | None = None
    while True:
        batch = await store.run(
            remove_batch(target, bounds, ignore_consumers, walked_to, batch_size)
        )
        removed += batch.removed
        held_back_by = held_back_by or batch.held_back_by
        walked_to = batch.walked_to
        progress(removed)
        if walked_to is None:
            return Retained(removed, held_back_by)
