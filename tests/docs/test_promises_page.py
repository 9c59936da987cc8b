"""docs/promises.md shows, for each promise, the tests that fail without it."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
PROMISES = re.split(r"^## (?=\d)", PAGE, flags=re.MULTILINE)[1:]
NAMED = re.compile(r"^<dd><code>tests/[^<]+</code></dd>$", re.MULTILINE)


def test_there_are_seven_promises_each_with_tests() -> None:
    numbers = [promise.partition(".")[0] for promise in PROMISES]

    assert numbers == ["1", "2", "3", "4", "5", "6", "7"]
    assert all(NAMED.findall(promise) for promise in PROMISES)
