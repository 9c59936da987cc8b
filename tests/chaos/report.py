"""`docs/chaos.md`, generated from the last long run, whose data is `docs/data/chaos.json`."""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import msgspec

from tests.chaos.checker.complaint import KINDS
from tests.chaos.run import Outcome

DOCS = Path(__file__).parents[2] / "docs"
DATA = DOCS / "data" / "chaos.json"
PAGE = DOCS / "chaos.md"

_TEMPLATE = """\
# Chaos

Every part of Penstock runs at once on one server: writers, transactions, consumers, a consumer
group, queue sessions, guarded decisions, partitioned workers, an outbox with joins, and a pipeline
on Spark, each in processes of its own. Meanwhile processes are killed with `kill -9` or paused,
backends are ended, connections are used up, transactions are left open, and the server is restarted
and crashed. Each process records the results that it gets. In the end all work is finished, and a
checker compares these records with the log, the positions, the joins and the pipeline's output.

This page is generated from one run of `make chaos`, on {began:%d %B %Y}: seed {seed},
{seconds:,.0f} seconds of faults, {processors} processors, Python {python}.
`make chaos CHAOS_SEED={seed}` repeats its choices. What the processes are doing when a fault hits
them is up to the machine, so the faults are the same, and the run is not.
[The data](data/chaos.json).

**Verdict: {verdict}**

| broken promises | |
|---|---:|
{broken}
| processes that ended by themselves, work that was never done | {unrest:,} |

| faults | |
|---|---:|
{faults}

| what there was to get wrong | |
|---|---:|
{amounts}
"""


class Report(msgspec.Struct, frozen=True):
    """What is kept of a run."""

    began: datetime
    seed: int
    seconds: float
    processors: int
    python: str
    faults: dict[str, int]
    amounts: dict[str, int]
    broken: dict[str, int]  # complaints of the checker, by kind
    complaints: list[str]
    unrest: list[str]

    @property
    def is_clean(self) -> bool:
        """Whether nobody has anything to complain of."""
        return not self.complaints and not self.unrest


def report(outcome: Outcome, *, began: datetime, seed: int, seconds: float) -> Report:
    """Return what is to be kept of a run."""
    found = Counter(one.kind for one in outcome.verdict.complaints)
    return Report(
        began,
        seed,
        seconds,
        os.cpu_count() or 0,
        platform.python_version(),
        dict(outcome.faults),
        outcome.verdict.amounts,
        {kind: found[kind] for kind in KINDS},
        [f"{one.kind}: {one.text}" for one in outcome.verdict.complaints],
        outcome.unrest,
    )


def write(found: Report) -> None:
    """Keep a run, and write its page."""
    DATA.parent.mkdir(parents=True, exist_ok=True)
    DATA.write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    PAGE.write_text(page(found), encoding="utf-8")


def load() -> Report:
    """Return the run that the repository keeps."""
    return msgspec.json.decode(DATA.read_bytes(), type=Report)


def page(found: Report) -> str:
    """Return the page of a run, in Markdown."""
    return _TEMPLATE.format(
        began=found.began,
        seed=found.seed,
        seconds=found.seconds,
        processors=found.processors,
        python=found.python,
        verdict="nothing was broken." if found.is_clean else "BROKEN.",
        broken=_rows(found.broken),
        unrest=len(found.unrest),
        faults=_rows(found.faults),
        amounts=_rows(found.amounts),
    )


def _rows(counts: Mapping[str, int]) -> str:
    return "\n".join(f"| {name} | {count:,} |" for name, count in counts.items())
