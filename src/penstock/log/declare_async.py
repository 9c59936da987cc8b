"""Declare typed message classes to the database, once for each store."""

from __future__ import annotations

from penstock.log import boundary
from penstock.log.runs_async import AsyncRuns
from penstock.loops.concurrency_async import sleep
from penstock.message.typed import TypedMessage

PAUSE = 0.05  # seconds, for older transactions to end before indexing can begin
MOST_PAUSES = 20
MOST_SLICES = 100  # of ten thousand positions


async def declare_missing(
    runs: AsyncRuns, classes: set[type[TypedMessage]], *, to_write: bool = False
) -> None:
    """Declare the classes that the store has not declared yet, and index a few older messages."""
    context = runs.context
    for one in classes - (context.declared if to_write else context.indexed):
        await runs.run_apart(boundary.declare(context, one))
        indexed = await _index_a_few(runs, one.message_type)
        if not runs.may_be_undone:
            context.declared.add(one)
            if indexed:
                context.indexed.add(one)


async def _index_a_few(runs: AsyncRuns, type: str) -> bool:
    """Index a limited number of older messages of a type. Return whether all are indexed."""
    slices, pauses = MOST_SLICES, MOST_PAUSES
    while slices > 0 and pauses > 0:
        state = await index_slice(runs, type)
        if state is None:
            return True
        slices, pauses = slices - (state[0] > 0), pauses - (state[0] == 0)
    return False


async def index_slice(runs: AsyncRuns, type: str) -> tuple[int, int] | None:
    """Index the next slice. Pause if older transactions must end before it can begin."""
    state = await runs.run_apart(boundary.fill_attributes(type))
    if state is not None and state[0] == 0:
        await sleep(PAUSE)
    return state
