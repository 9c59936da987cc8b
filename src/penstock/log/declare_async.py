"""Declare typed message classes to the database, once for each store."""

from __future__ import annotations

from functools import partial

from penstock.errors import ArchiveUnreachable
from penstock.log import boundary
from penstock.log.boundary import ArchivedSlice, Filling
from penstock.log.runs_async import AsyncRuns
from penstock.loops.concurrency_async import run_in_thread, sleep
from penstock.message.typed import TypedMessage

PAUSE = 0.05  # seconds, for older transactions to end before indexing can begin
MOST_PAUSES = 20
MOST_SLICES = 100  # of ten thousand positions
ARCHIVED_SLICE = 5_000  # messages of the archive that are indexed in one transaction


async def declare_missing(
    runs: AsyncRuns, classes: set[type[TypedMessage]], *, to_write: bool = False
) -> None:
    """Declare the classes that the store has not declared yet, and index a few older messages."""
    context = runs.context
    for one in classes - (context.declared if to_write else context.indexed):
        await runs.run_apart(boundary.declare(context, one))
        try:
            indexed = await _index_a_few(runs, one.message_type)
        except (ArchiveUnreachable, ImportError):
            if not to_write:
                raise
            indexed = False  # a message can be written without the archive, or the extra `lake`
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
        waits = state.filled_to == 0
        slices, pauses = slices - (not waits), pauses - waits
    return False


async def index_slice(runs: AsyncRuns, type: str) -> Filling | None:
    """Index the next slice. Pause if older transactions must end before it can begin."""
    state = await runs.run_apart(boundary.fill_attributes(type))
    if state is not None and state.archived is not None:
        await _index_archived(runs, state.archived)
    elif state is not None and state.filled_to == 0:
        await sleep(PAUSE)
    return state


async def _index_archived(runs: AsyncRuns, archived: ArchivedSlice) -> None:
    """Index the next archived messages of a type, which only clients can read."""
    # only those who read history need the extra `lake`
    from penstock.lake.archive_files import read_type

    properties = runs.context.lake_options
    read = partial(
        read_type,
        archived.location,
        properties,
        archived.type,
        archived.categories,
        archived.after,
        ARCHIVED_SLICE,
    )
    rows = await run_in_thread(read)
    await runs.run_apart(boundary.fill_archived(archived, rows, ARCHIVED_SLICE))
