"""The overview: what is wrong, how far the log is, who holds readers back, and what lags."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.console.backlogs import backlogs
from penstock.console.data import overview as data
from penstock.console.data.pages import Count
from penstock.console.history import APART
from penstock.console.live import Live
from penstock.console.screen import Ask, Screen
from penstock.store_async import AsyncStore

#: seconds between two runs of the doctor's checks, which open a connection
_DOCTOR_EVERY = 60.0


@dataclass(frozen=True)
class Figures:
    """What the shared poll reads."""

    overview: data.Overview
    findings: tuple[data.Finding, ...]
    #: by the reader's kind and name: how many messages it is behind, of the worst readers
    behind: Mapping[str, Count]
    #: by the clock of this process, in seconds: when the doctor and the backlogs were read
    checked_at: float
    counted_at: float


async def poll(store: AsyncStore, live: Live) -> Figures:
    """Read the figures, and add them to the history of the last hour."""
    last: Figures | None = live.figures
    now = time.monotonic()
    found = await _readers_with_names(store)
    figures = last or Figures(found, (), {}, float("-inf"), float("-inf"))
    if now - figures.checked_at > _DOCTOR_EVERY:
        figures = replace(figures, findings=await data.findings(store), checked_at=now)
    if now - figures.counted_at > APART:
        figures = replace(figures, behind=await backlogs(store, found.readers), counted_at=now)
    lags = {
        f"{one.kind} {one.name}": (
            figures.behind.get(f"{one.kind} {one.name}", Count(0)).value,
            one.seconds,
        )
        for one in found.readers
    }
    live.history.add(found.last_position, lags)
    return replace(figures, overview=found)


async def _readers_with_names(store: AsyncStore) -> data.Overview:
    """Return the state of the store, without the outbox as a reader if nothing is in it."""
    found = await data.overview(store)
    named = tuple(one for one in found.readers if one.name)
    return replace(
        found,
        readers=named,
        reader_count=found.reader_count - (len(found.readers) - len(named)),
    )


async def overview(ask: Ask) -> Mapping[str, Any]:
    """Return the figures and the charts of the last hour."""
    figures: Figures = await ask.live.fresh()
    history = ask.live.history
    return {
        "overview": figures.overview,
        "behind": figures.behind,
        "findings": figures.findings,
        "write_rate": history.write_rate(),
        "lag_seconds": history.lag_seconds(),
        "lag_messages": history.lag_messages(),
    }


SCREENS = (
    Screen(
        *("/", "overview", "Overview", "overview.html", overview),
        "The state of the store: positions, open writers, lags, failures, versions, findings, "
        "and the write rate and lags of the last hour.",
    ),
)
