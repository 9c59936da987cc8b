"""Declare typed message classes to the database, once for each store."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.log import declarations
from penstock.log.runs_async import AsyncRuns
from penstock.loops.concurrency_async import sleep
from penstock.message.typed import TypedMessage

PAUSE = 0.05  # seconds, for older transactions to end before indexing can begin
MOST_PAUSES = 20
MOST_SLICES = 100  # of ten thousand positions


async def declare_missing(
    runs: AsyncRuns, classes: Iterable[type[TypedMessage]], *, to_write: bool = False
) -> None:
    """Declare the classes that the store has not declared yet."""
    for one in runs.context.declared.lacking(classes, to_write=to_write):
        await _declare(runs, one)
        indexed = await _index_a_few(runs, one.message_type)
        if not runs.may_be_undone:
            runs.context.declared.note(one, indexed=indexed)


async def declare_and_index(
    runs: AsyncRuns,
    classes: Iterable[type[TypedMessage]],
    progress: Callable[[str, int, int], None],
) -> None:
    """Declare the classes, and index all their older messages."""
    for one in declarations.checked_classes(classes):
        await _declare(runs, one)
        while (state := await _index_slice(runs, one.message_type)) is not None:
            progress(one.message_type, *state)


async def _declare(runs: AsyncRuns, one: type[TypedMessage]) -> None:
    await runs.run_apart(
        declarations.declare(runs.context, one.message_type, one.indexed_attribute_names)
    )


async def _index_a_few(runs: AsyncRuns, type: str) -> bool:
    """Index a limited number of older messages of a type. Return whether all are indexed."""
    slices, pauses = MOST_SLICES, MOST_PAUSES
    while slices > 0 and pauses > 0:
        state = await _index_slice(runs, type)
        if state is None:
            return True
        slices, pauses = slices - (state[0] > 0), pauses - (state[0] == 0)
    return False


async def _index_slice(runs: AsyncRuns, type: str) -> tuple[int, int] | None:
    """Index the next slice. Pause if older transactions must end before it can begin."""
    state = await runs.run_apart(declarations.fill(runs.context, type))
    if state is not None and state[0] == 0:
        await sleep(PAUSE)
    return state
