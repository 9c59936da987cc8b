"""Find the state of a boundary: kept in the process, from a snapshot, or from the first message."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from penstock.errors import first_line
from penstock.log import decision
from penstock.log.boundary import watched_classes
from penstock.log.decider import Decider
from penstock.log.decision import BoundaryState
from penstock.log.declare_async import declare_missing
from penstock.log.guard import Guard
from penstock.log.runs_async import AsyncRuns

logger = logging.getLogger("penstock")


async def current_state(
    runs: AsyncRuns, decider: Decider[Any, Any], guard: Guard, *, keep: bool
) -> BoundaryState:
    """Return the state of the guard's conditions as of now, with the guard for the decision.

    `keep` it for the next decision, unless it may have messages that are not committed.
    """
    await declare_missing(runs, watched_classes(guard))
    states, key = runs.context.states, decision.cache_key(guard.conditions)
    current = await _continued(runs, decider, states.get(decider, key))
    if current is None and decider.snapshot_every is not None:
        current = await _continued(runs, decider, await _snapshot(runs, decider, guard))
    if current is None:
        begin = decision.initial_state(decider, guard)
        unseen = await runs.run(decision.read_unseen(runs.context, begin.guard))
        current = decision.advanced(decider, begin, unseen)
    if keep:
        states.put(decider, key, current)
    return current


async def save_if_due(runs: AsyncRuns, decider: Decider[Any, Any], current: BoundaryState) -> None:
    """Save a snapshot if enough messages were read since the last one. Never raises an error."""
    if decider.snapshot_every is None or current.unsaved < decider.snapshot_every:
        return
    key = decision.cache_key(current.guard.conditions)
    runs.context.states.put(decider, key, replace(current, unsaved=0))
    try:
        await runs.run(decision.save_snapshot(decider, current))
    except Exception as error:  # of the state or the database: the decision was made without it
        logger.warning("no snapshot of decider %s was saved: %s", decider.name, first_line(error))


async def _continued(
    runs: AsyncRuns, decider: Decider[Any, Any], begin: BoundaryState | None
) -> BoundaryState | None:
    """Return the state with what came after it; None if there is none that can be continued."""
    if begin is None:
        return None
    unseen = await runs.run(decision.read_unseen(runs.context, begin.guard))
    if not decision.continues(begin, unseen):
        return None
    return decision.advanced(decider, begin, unseen)


async def _snapshot(
    runs: AsyncRuns, decider: Decider[Any, Any], guard: Guard
) -> BoundaryState | None:
    """Return what the boundary's snapshot holds; None if there is none that can be decoded."""
    found = await runs.run(decision.load_snapshot(decider, guard.conditions))
    if found is None:
        return None
    try:
        return replace(found, state=decider.codec.decode(found.state))
    except Exception as error:  # of msgspec, or of the state's own methods
        if runs.context.states.warns_first((decider.name, decider.version)):
            logger.warning(
                "snapshots of decider %s, version %s, are ignored, since one cannot be decoded: %s",
                decider.name,
                decider.version,
                first_line(error),
            )
        return None
