"""The evidence in the README, generated from the runs whose data the repository keeps.

`python -m tests.docs.evidence` writes it.
"""

from __future__ import annotations

import re

import bench.report
import bench.results
from tests.chaos import report as chaos
from tests.docs.pages import ROOT
from tests.mutants import results as mutants
from tests.pipeline.steps import crash_report as crashes

README = ROOT / "README.md"
_MARKED = re.compile(r"(<!-- evidence -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(text: str) -> str:
    """Return the README with what the runs found between its marks."""
    lines = [_mutants(), _crashes(), _chaos(), _benchmarks()]
    return _MARKED.sub(lambda mark: f"{mark[1]}{''.join(lines)}{mark[2]}", text)


def _mutants() -> str:
    run = mutants.load()
    survivors = sum(not one.is_caught for one in run.results)
    tests = {test for one in run.results for test in one.caught_by}
    return (
        f"- {len(run.results)} mechanisms were removed, one at a time: {len(tests)} tests caught "
        f"them, {survivors or 'none'} survived ([promises](docs/promises.md)).\n"
    )


def _crashes() -> str:
    run = crashes.load()
    return (
        f"- Pipelines were killed with `kill -9` at {run.kills:,} points of their steps, and went "
        f"on: {len(run.wrong) or 'no'} results differed "
        "([crash matrix](docs/promises.md#with-spark)).\n"
    )


def _chaos() -> str:
    run = chaos.load()
    broken, faults = sum(run.broken.values()), sum(run.faults.values())
    return (
        f"- {run.amounts['messages in the log']:,} messages went through {faults} faults "
        f"in {run.seconds:.0f} seconds: {broken or 'none'} lost, doubled or out of order "
        "([chaos](docs/chaos.md)).\n"
    )


def _benchmarks() -> str:
    data = bench.report.DOCS / bench.report.DATA
    if not data.exists():
        return ""  # there are no figures yet, and the page says so
    run = bench.results.load(data)
    met = sum(ratio.verdict == "met" for _, ratio in run.aimed)
    return (
        f"- {met} of {len(run.aimed)} aims against the alternatives are met; the page begins with "
        "where we are behind ([benchmarks](docs/benchmarks.md)).\n"
    )


if __name__ == "__main__":
    README.write_text(filled(README.read_text(encoding="utf-8")), encoding="utf-8")
