"""The overview: what is wrong, how far the log is, who holds readers back, and what lags."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.console.backlogs import backlogs
from penstock.console.data import overview as data
from penstock.console.data.errors_queues import MOST_SETTLED, errors_in, errors_queues_of
from penstock.console.data.pages import Count
from penstock.console.history import APART
from penstock.console.live import Live
from penstock.console.screen import Ask, Screen
from penstock.store_async import AsyncStore

#: seconds between two runs of the doctor's checks, which open a connection
_DOCTOR_EVERY = 60.0
#: seconds between two looks for errors queues, at the last message of each category
_ERRORS_EVERY = 15.0
#: of the errors queues that an overview has
_MOST_QUEUES = 10


@dataclass(frozen=True)
class Figures:
    """What the shared poll reads."""

    overview: data.Overview
    findings: tuple[data.Finding, ...]
    #: by the reader's kind and name: how many messages it is behind, of the worst readers
    behind: Mapping[str, Count]
    #: the errors queues with messages that nobody has retried or dropped
    errors: tuple[data.Trouble, ...] = ()
    #: by the clock of this process, in seconds: when each of these was read
    checked_at: float = float("-inf")
    counted_at: float = float("-inf")
    errors_at: float = float("-inf")


async def poll(store: AsyncStore, live: Live) -> Figures:
    """Read the figures, and add them to the history of the last hour."""
    last: Figures | None = live.figures
    now = time.monotonic()
    found = await _readers_with_names(store)
    figures = last or Figures(found, (), {})
    if now - figures.checked_at > _DOCTOR_EVERY:
        figures = replace(figures, findings=await data.findings(store), checked_at=now)
    if now - figures.errors_at > _ERRORS_EVERY:
        figures = replace(figures, errors=await _errors(store), errors_at=now)
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
    troubles = (*found.troubles, *figures.errors)
    count = found.trouble_count + len(figures.errors)
    return replace(figures, overview=replace(found, troubles=troubles, trouble_count=count))


async def _errors(store: AsyncStore) -> tuple[data.Trouble, ...]:
    """Return the errors queues of pipelines, with the error of the newest message in each."""
    if not store.context.edition.has_watermark:
        return ()
    troubles = []
    for queue in (await errors_queues_of(store, ()))[:_MOST_QUEUES]:
        errors, more = await errors_in(store, queue, None, MOST_SETTLED)
        if errors:
            count = Count(len(errors), at_least=more is not None)
            subject = {"errors_queue": queue}
            troubles.append(data.Trouble("errors.waiting", count, subject, errors[0].error))
    return tuple(troubles)


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
