"""Contenders take turns, round after round; figures and ratios are medians over the rounds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from bench.results import Figure, significant


@dataclass(frozen=True, slots=True)
class Contender:
    """Something to measure: a name, and a function that runs one slice and returns its figure."""

    name: str
    slice: Callable[[], float]


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to measure: how many rounds, and how long a slice under load lasts."""

    quick: bool
    rounds: int
    seconds: int


QUICK = Effort(quick=True, rounds=2, seconds=1)
FULL = Effort(quick=False, rounds=11, seconds=1)  # more rounds, not longer slices: disks drift


def measure(
    title: str, unit: str, contenders: Sequence[Contender], rounds: int, *, warm_up: bool = True
) -> dict[str, Figure]:
    """Return each contender's figures of all rounds, by its name.

    A first round warms up and is not counted, unless there is nothing to warm up. Each round has
    an order of its own, the same in every run: so no contender always runs after the same other
    one, which may leave it a warm cache or a busy disk.
    """
    order = Random(title)
    values: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    for number in range(0 if warm_up else 1, rounds + 1):
        for contender in order.sample(contenders, len(contenders)):
            tell(f"{title}: {f'round {number} of {rounds}' if number else 'warming up'}")
            value = contender.slice()
            if number:
                values[contender.name].append(significant(value))
    return {name: Figure(name, unit, figures) for name, figures in values.items()}


def tell(text: str) -> None:
    """Say on standard error what is going on: in place on a terminal, else line by line."""
    global _told
    if text == _told:
        return
    _told = text
    sys.stderr.write(f"\r\033[K{text}" if sys.stderr.isatty() else f"{text}\n")
    sys.stderr.flush()


def done_telling() -> None:
    """Clear the line that `tell` writes to."""
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K")


_told = ""
