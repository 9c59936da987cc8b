"""The page on chaos says what the run found whose data the repository keeps."""

from __future__ import annotations

import msgspec

from tests.chaos import report

LONG = 600  # seconds


def test_the_page_is_that_of_the_run_that_is_kept() -> None:
    assert report.PAGE.read_text(encoding="utf-8") == report.page(report.load())


def test_that_run_was_long_and_broke_nothing() -> None:
    kept = report.load()

    assert kept.seconds >= LONG
    assert all(kept.faults.values())
    assert kept.is_clean


def test_a_run_that_broke_something_says_so() -> None:
    kept = report.load()
    broken = msgspec.structs.replace(kept, broken={"lost": 1}, complaints=["lost: a message"])

    assert "**Verdict: BROKEN.**" in report.page(broken)
    assert "| lost | 1 |" in report.page(broken)
