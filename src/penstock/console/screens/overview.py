"""The overview: what is wrong, how far the log is, who holds readers back, and what lags."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.console.data import overview as data
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
    #: by the clock of this process, in seconds
    checked_at: float


async def poll(store: AsyncStore, live: Live) -> Figures:
    """Read the figures, and add them to the history of the last hour."""
    last: Figures | None = live.figures
    found = await _readers_with_names(store)
    if last is None or time.monotonic() - last.checked_at > _DOCTOR_EVERY:
        figures = Figures(found, await data.findings(store), time.monotonic())
    else:
        figures = replace(last, overview=found)
    lags = {f"{one.kind} {one.name}": (0.0, one.seconds) for one in found.readers}
    live.history.add(found.last_position, lags)
    return figures


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
        "findings": figures.findings,
        "write_rate": history.write_rate(),
        "lags": history.lag_seconds(),
    }


SCREENS = (
    Screen(
        *("/", "overview", "Overview", "overview.html", overview),
        "The state of the store: positions, open writers, lags, failures, versions, findings, "
        "and the write rate and lags of the last hour.",
    ),
)
