"""Made-up runs, for tests of what is printed and drawn."""

from __future__ import annotations

from datetime import UTC, datetime

from bench.comparisons import COMPARISONS
from bench.results import Comparison, Figure, Ratio, Run, Setting

OURS = Figure("ours", "messages/s", [200.0, 100.0, 400.0])
THEIRS = Figure("theirs", "messages/s", [100.0, 100.0, 100.0])


def run_of(*ratios: Ratio) -> Run:
    """Return a run of one comparison with these ratios."""
    notes, sync = ["One writer."], [0.07, 0.25]
    compared = Comparison(
        "writes", [OURS, THEIRS], list(ratios), notes, "100 messages", "write-message", sync
    )
    return run_with(compared)


def run_with(*compared: Comparison) -> Run:
    """Return a full run that found these comparisons."""
    return Run(
        began=datetime(2026, 1, 2, 14, 45, tzinfo=UTC),
        quick=False,
        seconds=1800.0,
        machine={"processors": "2"},
        versions={"PostgreSQL": "18.4"},
        settings=[
            Setting("max_wal_size", "16GB", "1024 MB", "No checkpoint in a slice."),
            Setting("autovacuum", "on", "on"),
        ],
        parts=list(COMPARISONS),
        done=list(COMPARISONS),
        comparisons=list(compared),
    )
