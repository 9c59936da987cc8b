"""The options that commands share."""

from __future__ import annotations

from datetime import timedelta

import pytest
import typer

from penstock.cli.target import duration


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("45s", timedelta(seconds=45)),
        ("1.5 s", timedelta(seconds=1.5)),
        ("30min", timedelta(minutes=30)),
        ("12h", timedelta(hours=12)),
        (" 90d ", timedelta(days=90)),
        ("8w", timedelta(weeks=8)),
        ("0s", timedelta()),
    ],
)
def test_a_duration_is_a_number_with_a_unit(text: str, expected: timedelta) -> None:
    assert duration(text) == expected


@pytest.mark.parametrize("text", ["", "90", "d", "-1d", "1 year", "1d2h", "1e3s", "999999999w"])
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match=r"expected a number with|too long"):
        duration(text)
