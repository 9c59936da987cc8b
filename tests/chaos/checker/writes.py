"""Single writes: what was acknowledged is there, where it was said to be, and once; no more is.

A write is known by its key, which its data carries. If its outcome is unknown it may be there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from tests.chaos.checker.complaint import DISORDER, DOUBLED, INVENTED, LOST, Complaint
from tests.chaos.checker.evidence import Evidence, Fact, Row
from tests.chaos.names import (
    ACCOUNT,
    MAIL_STREAM,
    OPENED,
    REFUSED,
    REQUESTED,
    TAKEN,
    TRIED,
    WRITTEN,
)

#: where single writes go to; a seat that was asked for is not one
CATEGORIES = (ACCOUNT, MAIL_STREAM.partition("-")[0], OPENED, REQUESTED, TAKEN)


def check_writes(evidence: Evidence) -> Iterator[Complaint]:
    rows = [row for row in evidence.log if row.category in CATEGORIES and _key(row)]
    there = {_key(row): row for row in rows}
    tried = {fact["key"]: fact for fact in evidence.noted(TRIED)}
    for key, count in Counter(map(_key, rows)).items():
        if count > 1:
            yield Complaint(DOUBLED, f"write {key} is there {count} times")
        if key not in tried:
            yield Complaint(INVENTED, f"write {key} is there, and nobody tried it")
    for fact in evidence.noted(REFUSED):
        if fact["key"] in there:
            yield Complaint(INVENTED, f"write {fact['key']} was refused, and is there")
    for fact in evidence.noted(WRITTEN):
        yield from _as_acknowledged(fact, tried[fact["key"]], there.get(fact["key"]))
    for name, lives in evidence.facts.items():
        yield from _in_order(name, [fact for life in lives for fact in life], there)


def check_streams(evidence: Evidence) -> Iterator[Complaint]:
    """Every stream's positions are 0, 1, 2 and so on, in the order of the log."""
    last: dict[str, int] = {}
    for row in evidence.log:
        expected = last.get(row.stream, -1) + 1
        if row.position != expected:
            text = f"{row.stream} has position {row.position} where {expected} should be"
            yield Complaint(DISORDER, text)
        last[row.stream] = row.position


def _key(row: Row) -> str | None:
    value = row.data.get("value", row.data)
    key = value.get("key") if isinstance(value, dict) else None
    return str(key) if key else None


def _as_acknowledged(fact: Fact, tried: Fact, row: Row | None) -> Iterator[Complaint]:
    key = fact["key"]
    if row is None:
        yield Complaint(LOST, f"write {key} to {tried['stream']} was acknowledged")
        return
    if (row.stream, row.position) != (tried["stream"], fact["position"]):
        text = f"write {key} was acknowledged at {tried['stream']} {fact['position']}"
        yield Complaint(DISORDER, f"{text}, and is at {row.stream} {row.position}")
    if tried.get("expected", row.position - 1) != row.position - 1:
        text = f"write {key} expected {tried['expected']}, and is at {row.position}"
        yield Complaint(DISORDER, text)


def _in_order(name: str, facts: list[Fact], there: dict[str | None, Row]) -> Iterator[Complaint]:
    """Writes of one actor stand in the log in the order of its results."""
    written = [fact["key"] for fact in facts if fact["fact"] == WRITTEN]
    rows = [there[key] for key in written if key in there]
    for earlier, later in pairwise(rows):
        if earlier.at > later.at:
            text = f"{name} wrote {_key(earlier)} before {_key(later)}"
            yield Complaint(DISORDER, text)
