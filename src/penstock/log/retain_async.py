"""Run a retention in batches, each in a transaction of its own."""

from __future__ import annotations

from collections.abc import Callable

from penstock.log.retention import BATCH_SIZE, Keep, Retained, Run, find_bounds, remove_batch
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
    run = Run(target, ignore_consumers, batch_size)
    bounds = await store.run(find_bounds(store.context, target, keep, ignore_consumers))
    while not run.ended:
        run.count(await store.run(remove_batch(run, bounds)))
        progress(run.removed)
    return run.retained()
