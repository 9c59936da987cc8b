"""The same calls, made on a genuine Message DB and on ours, have the same answers (promise 7).

Rows, positions, SQLSTATEs and messages are compared; only the time of writing is left out. What
differs on purpose is in `differences.py`, and nowhere else.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tests.compatibility.calls import SEQUENCES
from tests.compatibility.calls_at_random import Call, sequences
from tests.compatibility.differences import DIFFERENCES, Difference
from tests.compatibility.sides import Sides


@pytest.mark.parametrize("calls", SEQUENCES.values(), ids=SEQUENCES)
def test_the_same_calls_have_the_same_answers(sides: Sides, calls: list[str]) -> None:
    for call in calls:
        genuine, ours = sides.ask(call)

        assert ours == genuine, call


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda one: one.what)
def test_what_differs_on_purpose_differs_as_it_is_written_down(
    sides: Sides, difference: Difference, request: pytest.FixtureRequest
) -> None:
    *before, last = difference.calls
    for call in before:
        genuine, ours = sides.ask(call)
        assert ours == genuine, call

    if difference.on_standby:
        sides = request.getfixturevalue("standby_sides")
    genuine, ours = sides.ask(last)

    assert genuine == difference.genuine
    assert ours == difference.ours
    assert genuine != ours


def test_the_documentation_lists_the_same_differences() -> None:
    page = (Path(__file__).parents[2] / "docs" / "compatibility.md").read_text(encoding="utf-8")

    _, _, listed = page.partition("\n## Differences\n")

    assert [line for line in listed.splitlines() if line.startswith("- ")] == [
        f"- **{one.what}** {one.why}" for one in DIFFERENCES
    ]


@given(calls=sequences())
@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_random_calls_have_the_same_answers(sides: Sides, calls: list[Call]) -> None:
    for side in sides:
        side.begin_again()
        side.empty()

    for call in calls:
        genuine, ours = sides.ask(call.sql, call.arguments)

        assert ours == genuine, call
