"""What the last run of the whole matrix found: kept as JSON, and shown in `docs/promises.md`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

import msgspec

from tests.pipeline.steps.matrix import KINDS, STEPS, Kill

ROOT = Path(__file__).parents[3]
FILE = ROOT / "docs" / "data" / "crash-matrix.json"
PAGE = ROOT / "docs" / "promises.md"
_MARKED = re.compile(r"(<!-- crash matrix -->\n).*?(<!-- end -->)", re.DOTALL)


class Report(msgspec.Struct, frozen=True):
    """One run of the whole matrix."""

    began: datetime
    seconds: float
    seed: int
    python: str
    postgresql: str
    drivers: int  # processes that were killed, each with many pipelines in it
    points: dict[str, dict[str, int]]  # by who staged, and by pipeline
    killed: dict[str, dict[str, int]]  # by who staged, and by what was done last
    wrong: list[str]  # kills after which the result was another one

    @property
    def kills(self) -> int:
        """How many pipelines were killed, each once at each of its points."""
        return sum(sum(found.values()) for found in self.killed.values())


def by_pipeline(kills: Iterable[Kill]) -> dict[str, dict[str, int]]:
    """Count kills by who staged, and by pipeline."""
    return _counted((kill.case.step, kill.case.pipeline) for kill in kills)


def by_kind(kills: Iterable[Kill]) -> dict[str, dict[str, int]]:
    """Count kills by who staged, and by what was done last."""
    return _counted((kill.case.step, kill.kind) for kill in kills)


def load() -> Report:
    """Return the run that the repository keeps."""
    return msgspec.json.decode(FILE.read_bytes(), type=Report)


def save(report: Report) -> None:
    """Keep a run in the repository, and show it in the page."""
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), report), encoding="utf-8")


def filled(page: str, report: Report) -> str:
    """Return the page with a run between its marks."""
    return _MARKED.sub(lambda mark: f"{mark[1]}\n{_shown(report)}\n{mark[2]}", page)


def _shown(report: Report) -> str:
    points = sum(sum(found.values()) for found in report.points.values())
    pipelines = len({name for found in report.points.values() for name in found})
    verdict = f"{len(report.wrong)} of the results differed" if report.wrong else "None differed"
    rows = "".join(
        f"| {kind} | {' | '.join(str(report.killed[step].get(kind, '')) for step in STEPS)} |\n"
        for kind in KINDS
    )
    return (
        f"The crash matrix runs {pipelines} pipelines, each with steps that the driver reads and "
        "stages, and again with\nsteps that executors read and stage. A point is a statement that "
        "the server has answered, while its answer has\nnot arrived; statements that only read "
        "leave nothing behind, and are no points. At each point the driver and its\ntasks are "
        "killed with `kill -9`, a fresh run goes on, and its messages, tailers, tables and files "
        "are compared\nwith those of an undisturbed run. The last run, on "
        f"{report.began:%d %B %Y} with Python {report.python} and\nPostgreSQL "
        f"{report.postgresql}, took {report.seconds / 60:.0f} minutes (seed {report.seed}). It "
        f"covered {report.kills} of {points} points\n(drivers killed: {report.drivers}). "
        f"{verdict}.\n\n"
        "| what was done last | steps of the driver | steps of executors |\n| --- | --- | --- |\n"
        f"{rows}\n[The report](data/crash-matrix.json). `make crash-matrix` makes it anew.\n"
    )


def _counted(found: Iterable[tuple[str, str]]) -> dict[str, dict[str, int]]:
    counts = Counter(found)
    return {
        step: {name: count for (one, name), count in sorted(counts.items()) if one == step}
        for step in STEPS
    }
