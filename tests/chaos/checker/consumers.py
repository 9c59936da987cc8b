"""Consumers: transactional ones have seen every transfer once and in order; members at least once.

A member that resumes may handle again what it had handled; but it never passes over a message. So
at no moment is there one of its streams in which it has handled a message and not those before it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.chaos.checker.complaint import DISORDER, DOUBLED, INVENTED, LOST, Complaint
from tests.chaos.checker.evidence import Evidence, Fact
from tests.chaos.names import HANDLED, SEEN, TRANSFER


def check_consumers(evidence: Evidence) -> Iterator[Complaint]:
    for name, _ in evidence.lives("consumer"):
        yield from _seen_once(evidence, name)
    members = list(evidence.lives("member"))
    if members:
        yield from _handled_all(evidence, members)
    for name, lives in members:
        yield from _never_ahead(evidence, name, lives)


def _seen_once(evidence: Evidence, name: str) -> Iterator[Complaint]:
    wanted = {row.at for row in evidence.category(TRANSFER)}
    stream = f"{SEEN}-{name.partition('-')[2]}"
    seen = [row.data["source"] for row in evidence.stream(stream)]
    yield from compare(name, Counter(wanted), Counter(seen))
    if any(earlier > later for earlier, later in pairwise(seen)):
        yield Complaint(DISORDER, f"what {name} has seen")


def compare(name: str, wanted: Counter[int], found: Counter[int]) -> Iterator[Complaint]:
    """Complain of each that is missing, there too often, or there for no reason."""
    for at in sorted((wanted - found).keys()):
        yield Complaint(LOST, f"{name} lacks {at}")
    for at in sorted((found - wanted).keys()):
        kind = DOUBLED if at in wanted else INVENTED
        yield Complaint(kind, f"{name} has {at} {found[at]} times")


def _handled_all(
    evidence: Evidence, members: list[tuple[str, list[list[Fact]]]]
) -> Iterator[Complaint]:
    """Each transfer was handled, and by one member only."""
    handlers: dict[int, set[str]] = defaultdict(set)
    for name, lives in members:
        for fact in (fact for life in lives for fact in life if fact["fact"] == HANDLED):
            handlers[fact["at"]].add(name)
    transfers = {row.at for row in evidence.category(TRANSFER)}
    for at in sorted(transfers - handlers.keys()):
        yield Complaint(LOST, f"no member has handled {at}")
    for at in sorted(handlers.keys() - transfers):
        yield Complaint(INVENTED, f"{', '.join(handlers[at])} handled {at}, which is not there")
    for at, names in handlers.items():
        if len(names) > 1:
            yield Complaint(DOUBLED, f"{at} was handled by {', '.join(sorted(names))}")


def _never_ahead(evidence: Evidence, name: str, lives: list[list[Fact]]) -> Iterator[Complaint]:
    position = {row.at: (row.stream, row.position) for row in evidence.category(TRANSFER)}
    handled: dict[str, int] = defaultdict(int)
    for fact in (fact for life in lives for fact in life if fact["fact"] == HANDLED):
        if fact["at"] not in position:
            continue
        stream, place = position[fact["at"]]
        if place > handled[stream]:
            text = f"{name} handled {stream} {place} before {handled[stream]}"
            yield Complaint(DISORDER, text)
        handled[stream] = max(handled[stream], place + 1)
