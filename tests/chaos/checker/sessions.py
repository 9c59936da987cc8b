"""Sessions: who commits by hand got every record at least once, who does not got each at most once.

A reader that commits by hand never passes over a record, however often it goes back. One that
commits with each poll may lose the record that it was polling when it was killed, and no other.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.chaos.checker.complaint import DISORDER, DOUBLED, LOST, Complaint
from tests.chaos.checker.evidence import Evidence, Fact
from tests.chaos.names import MAIL_STREAM, POLLED

Polls = list[list[Fact]]


def check_sessions(evidence: Evidence) -> Iterator[Complaint]:
    keys = [row.data.get("value", row.data)["key"] for row in evidence.stream(MAIL_STREAM)]
    for name, lives in evidence.lives("reader"):
        polls = [[fact for fact in life if fact["fact"] == POLLED] for life in lives]
        yield from _are_the_records(name, polls, keys)
        check = _at_most_once if name == "reader-auto" else _at_least_once
        yield from check(name, polls, len(keys))
        if evidence.sessions.get(name, 0) != len(keys):
            stored = evidence.sessions.get(name, 0)
            yield Complaint(LOST, f"{name} is to go on at {stored}, with {len(keys)} records there")


def _are_the_records(name: str, polls: Polls, keys: list[str]) -> Iterator[Complaint]:
    for fact in (fact for life in polls for fact in life):
        offset = fact["offset"]
        if offset >= len(keys) or keys[offset] != fact["key"]:
            yield Complaint(DISORDER, f"{name} got another record at {offset} than is there")


def _at_least_once(name: str, polls: Polls, count: int) -> Iterator[Complaint]:
    got = 0
    for fact in (fact for life in polls for fact in life):
        if fact["offset"] > got:
            yield Complaint(DISORDER, f"{name} got {fact['offset']} before {got}")
        got = max(got, fact["offset"] + 1)
    if got < count:
        yield Complaint(LOST, f"{name} got {got} of {count} records")


def _at_most_once(name: str, polls: Polls, count: int) -> Iterator[Complaint]:
    got = may_skip = 0
    for life in polls:
        for fact in life:
            skipped, got = fact["offset"] - got, fact["offset"] + 1
            if skipped < 0:
                yield Complaint(DOUBLED, f"{name} got {fact['offset']} again")
            elif skipped > may_skip:
                yield Complaint(LOST, f"{name} got {fact['offset']} after {skipped} others")
            may_skip = 0
        may_skip += 1  # the record whose poll was cut short by the kill that ended this life
    if got + may_skip - 1 < count:
        yield Complaint(LOST, f"{name} got {got} of {count} records")
