"""Messages, some of which cannot be processed."""

from __future__ import annotations

from tests.pipeline.steps.running import Harness

BAD = (3, 4, 9)


def write_with_bad_ones(harness: Harness, count: int = 10) -> None:
    """Write numbers, some of them as text that is none."""
    for number in range(count):
        shown = f"bad {number}" if number in BAD else str(number)
        harness.store.write_message(f"number-{number}", "Numbered", {"n": number, "text": shown})
