"""What the checker can have to complain of."""

from __future__ import annotations

from dataclasses import dataclass

LOST = "lost"
DOUBLED = "doubled"
INVENTED = "never written, or undone, and there"
DISORDER = "out of order"
STALE = "stale decision"
MISCOUNTED = "join miscounted"
PIPELINE = "pipeline unequal to its input"

KINDS = (LOST, DOUBLED, INVENTED, DISORDER, STALE, MISCOUNTED, PIPELINE)


@dataclass(frozen=True)
class Complaint:
    """One thing that is not as it was promised."""

    kind: str
    text: str
