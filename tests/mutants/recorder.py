"""A pytest plugin, loaded in a mutant's run, that writes down how each test ended.

One line of JSON for a test's begin and one for its end: a run that had to be killed shows the test
it hung in. Only a failure of the test itself counts. A fixture that fails means that the mutant
does not even start, which is evidence of nothing.
"""

from __future__ import annotations

import json
import os

import pytest

FILE = "MUTANT_RECORD"  # not PENSTOCK_…: the tests remove those from their environment


def pytest_runtest_logstart(nodeid: str) -> None:
    _write(nodeid, "begun")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call":
        _write(report.nodeid, "failed" if report.failed else report.outcome, _reason(report))
    elif report.when == "setup" and report.failed:
        _write(report.nodeid, "error", _reason(report))


def _reason(report: pytest.TestReport) -> str:
    """Return the first line of what went wrong."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else str(report.longrepr or "")
    return text.strip().partition("\n")[0][:200]


def _write(nodeid: str, outcome: str, reason: str = "") -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        return  # the process that gave out the tests writes down all of them
    line = json.dumps({"test": nodeid, "outcome": outcome, "reason": reason}) + "\n"
    with open(os.environ[FILE], "a", encoding="utf-8") as file:  # noqa: PTH123
        file.write(line)
