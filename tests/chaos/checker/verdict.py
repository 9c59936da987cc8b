"""The verdict: all complaints by kind, beside how much there was to complain of."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tests.chaos.checker.complaint import KINDS, Complaint
from tests.chaos.checker.consumers import check_consumers
from tests.chaos.checker.evidence import Evidence
from tests.chaos.checker.joins import check_joins
from tests.chaos.checker.pipeline import check_pipeline
from tests.chaos.checker.seats import check_seats
from tests.chaos.checker.sessions import check_sessions
from tests.chaos.checker.transactions import check_transactions
from tests.chaos.checker.writes import check_streams, check_writes
from tests.chaos.names import (
    COMMITTED,
    DENIED,
    HANDLED,
    IMAGE,
    NOTE,
    OUTCOME,
    POLLED,
    REFUSED,
    REQUESTED,
    ROLLED_BACK,
    SEEN,
    TAKEN,
    TRANSFER,
    TRIED,
    WELCOMED,
    WRITTEN,
)

CHECKS = (
    check_streams,
    check_writes,
    check_transactions,
    check_consumers,
    check_sessions,
    check_seats,
    check_joins,
    check_pipeline,
)
SHOWN = 20  # complaints
#: the amounts without which a run has shown nothing of a promise
NEEDED = (
    "single writes acknowledged",
    "transactions committed",
    "transfers",
    "transfers seen, by two exactly-once",
    "handled by members and dispatchers",
    "records polled, by all readers",
    "notes published",
    "seats requested",
    "seats taken",
    "students welcomed",
    "outcomes of joins published",
)


@dataclass(frozen=True)
class Verdict:
    """What the checker has found."""

    complaints: list[Complaint]
    amounts: dict[str, int]

    @property
    def idle(self) -> list[str]:
        """Return of what there was nothing: then there was nothing to complain of, either."""
        return [name for name in NEEDED if not self.amounts[name]]

    def table(self) -> str:
        """Return what there was, how often each promise was broken, and the verdict."""
        found = Counter(one.kind for one in self.complaints)
        lines = [f"  {name:<42}{count:>9,}" for name, count in self.amounts.items()]
        lines += [f"  {kind:<42}{found[kind]:>9,}" for kind in KINDS]
        lines += [f"  {one.kind}: {one.text}" for one in self.complaints[:SHOWN]]
        return "\n".join([*lines, f"verdict: {'BROKEN' if self.complaints else 'all zero'}"])


def judge(evidence: Evidence) -> Verdict:
    """Check everything."""
    complaints = [one for check in CHECKS for one in check(evidence)]
    return Verdict(complaints, _amounts(evidence))


def _amounts(evidence: Evidence) -> dict[str, int]:
    noted = Counter(fact["fact"] for fact in evidence.noted())
    rows = Counter(row.category for row in evidence.log)
    states = Counter(row.status for row in evidence.joins)
    settled = noted[WRITTEN] + noted[REFUSED]
    return {
        "messages in the log": len(evidence.log),
        "single writes acknowledged": noted[WRITTEN],
        "single writes refused": noted[REFUSED],
        "single writes, outcome unknown": noted[TRIED] - settled,
        "transactions committed": noted[COMMITTED],
        "transactions rolled back": noted[ROLLED_BACK],
        "transfers": rows[TRANSFER],
        "transfers seen, by two exactly-once": rows[SEEN],
        "handled by members and dispatchers": noted[HANDLED],
        "records polled, by all readers": noted[POLLED],
        "notes published": rows[NOTE],
        "seats requested": rows[REQUESTED],
        "seats taken": rows[TAKEN],
        "seats denied": rows[DENIED],
        "students welcomed": rows[WELCOMED],
        "joins completed": states["completed"],
        "joins failed": states["failed"],
        "joins pending": states["pending"],
        "outcomes of joins published": rows[OUTCOME],
        "pipeline's steps": sum(row.type in ("Attempt", "NilAttempt") for row in evidence.log),
        "pipeline's image": rows[IMAGE],
        "lives of actors": sum(map(len, evidence.facts.values())),
    }
