"""The lists of tests in `docs/promises.md`, generated from the run that the repository keeps.

The page is prose with a pair of marks for each area; what is between them is generated.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from tests.mutants.areas import AREAS
from tests.mutants.mutant import ROOT
from tests.mutants.results import Result, Run

PAGE = ROOT / "docs" / "promises.md"
_MARKED = re.compile(r"(<!-- mutants: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def write(run: Run) -> None:
    """Write the lists of a run into the page."""
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), run), encoding="utf-8")


def filled(page: str, run: Run) -> str:
    """Return the page with the lists of a run between its marks."""
    results = {one.mutant: one for one in run.results}

    def fill(mark: re.Match[str]) -> str:
        begin, area, end = mark.groups()
        if area == "summary":
            return f"{begin}{_summary(run)}\n{end}"
        found = [results[one.name] for one in AREAS[area] if one.name in results]
        return f"{begin}{_listed(found)}{end}"

    return _MARKED.sub(fill, page)


def _summary(run: Run) -> str:
    tests = {test for result in run.results for test in result.caught_by}
    verdict = f"{', '.join(run.survivors)} survived" if run.survivors else "None survived"
    if run.again:
        verdict += f" (run after the others, with `--again`: {', '.join(run.again)})"
    return (
        f"The last run, on {run.began:%d %B %Y} with Python {run.python} and PostgreSQL "
        f"{run.postgresql}, took {run.seconds / 60:.0f} minutes with {run.workers} processes. It "
        f"removed {len(run.results)} mechanisms, one at a time; {len(tests)} tests caught them. "
        f"{verdict}. Every test was run on the unchanged code first: {run.unchanged} passed. "
        "[All results](data/mutants.json), with how each test failed."
    )


def _listed(results: Sequence[Result]) -> str:
    """The mechanisms of an area and the tests that caught them: HTML, folded."""
    tests = {test for one in results for test in one.caught_by}
    rows = "".join(
        f"<dt>{escape(one.without)} (<code>{one.mutant}</code>)</dt>\n"
        + "".join(f"<dd><code>{escape(test)}</code></dd>\n" for test in one.caught_by)
        + "".join(f"<dd>PASSES ALL THE SAME: {escape(test)}</dd>\n" for test in one.missed_by)
        for one in results
    )
    return (
        f"\n**Evidence.** {len(results)} mechanisms were removed, one at a time; {len(tests)} "
        "tests caught them.\n\n<details>\n<summary>What was removed, and the tests that failed "
        f"without it</summary>\n<dl>\n{rows}</dl>\n</details>\n\n"
    )
