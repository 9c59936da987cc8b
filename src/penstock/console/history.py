"""The figures of the last hour, in memory: the write rate and the lags of readers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

#: how long figures are kept, and how far apart two samples are at least
SECONDS, APART = 3600.0, 5.0
#: how many readers a chart shows: those that were furthest behind
READERS = 5


@dataclass(frozen=True)
class Sample:
    """The figures at one moment."""

    #: seconds of the epoch
    at: float
    #: the last global position
    head: int
    #: by reader: the messages and the seconds that it is behind
    lags: Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class Series:
    """One line of a chart: points of (seconds of the epoch, value)."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass
class History:
    """The samples of the last hour, oldest first."""

    samples: deque[Sample] = field(default_factory=deque)

    def add(self, head: int, lags: Mapping[str, tuple[float, float]]) -> None:
        """Add a sample, unless the last one is too near; forget those that are too old."""
        now = time.time()
        if self.samples and now < self.samples[-1].at:  # the clock was set back
            self.samples.clear()
        if self.samples and now - self.samples[-1].at < APART:
            return
        self.samples.append(Sample(now, head, dict(lags)))
        while self.samples[0].at < now - SECONDS:
            self.samples.popleft()

    def write_rate(self) -> Series:
        """Return the messages written per second."""
        samples = list(self.samples)
        points = [
            (after.at, max(0.0, (after.head - before.head) / (after.at - before.at)))
            for before, after in pairwise(samples)
        ]
        return Series("messages per second", tuple(points))

    def lag_seconds(self) -> list[Series]:
        """Return the seconds that readers are behind, of those with the highest lags."""
        return self._lags(1)

    def lag_messages(self) -> list[Series]:
        """Return the messages that readers are behind, of those with the highest lags."""
        return self._lags(0)

    def _lags(self, which: int) -> list[Series]:
        highest: dict[str, float] = {}
        for sample in self.samples:
            for name, lag in sample.lags.items():
                highest[name] = max(highest.get(name, 0.0), lag[1])  # one order for both charts
        shown = sorted(highest, key=lambda name: (-highest[name], name))[:READERS]
        return [
            Series(
                name,
                tuple(
                    (sample.at, sample.lags[name][which])
                    for sample in self.samples
                    if name in sample.lags
                ),
            )
            for name in shown
        ]


class Rates:
    """How fast counters rise that are read now and then."""

    def __init__(self) -> None:
        self._last: dict[Hashable, tuple[float, int, float | None]] = {}

    def of(self, key: Hashable, total: int) -> float | None:
        """Return the rise per second since the counter was read last; None the first time."""
        now = time.monotonic()
        then, before, rate = self._last.get(key, (now, total, None))
        if key in self._last and now - then < APART:
            return rate
        if now > then:
            rate = max(0.0, (total - before) / (now - then))
        self._last[key] = (now, total, rate)
        return rate
