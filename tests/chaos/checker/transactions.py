"""Transactions: all of one is there, in its order, or nothing; and what was undone never is.

The note that a transaction put into the outbox was published to the log once, if it was committed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from tests.chaos.checker.complaint import DISORDER, DOUBLED, INVENTED, LOST, Complaint
from tests.chaos.checker.evidence import Evidence, Fact
from tests.chaos.names import BEGUN, COMMITTED, NOTE, ROLLED_BACK, TRANSFER


def check_transactions(evidence: Evidence) -> Iterator[Complaint]:
    rows = evidence.category(TRANSFER)
    at = {row.data["key"]: row.at for row in rows}
    begun = {fact["transaction"]: fact for fact in evidence.noted(BEGUN) if "kept" in fact}
    committed = {fact["transaction"] for fact in evidence.noted(COMMITTED)} & begun.keys()
    undone = {fact["transaction"] for fact in evidence.noted(ROLLED_BACK)} & begun.keys()
    notes = Counter(row.data["transaction"] for row in evidence.category(NOTE))

    for key, count in Counter(row.data["key"] for row in rows).items():
        if count > 1:
            yield Complaint(DOUBLED, f"transfer {key} is there {count} times")
    known = {key for fact in begun.values() for key in fact["kept"]}
    for key in at.keys() - known:
        yield Complaint(INVENTED, f"transfer {key} was undone, or never written, and is there")
    for name, fact in begun.items():
        yield from _all_or_nothing(fact, at, name in committed, name in undone)
    for name in notes.keys() - begun.keys():
        yield Complaint(INVENTED, f"a note tells of transaction {name}, which never was")
    for name, fact in begun.items():
        if not fact.get("silent"):
            is_there = name in committed or any(key in at for key in fact["kept"])
            is_not = name in undone or (bool(fact["kept"]) and not is_there)
            yield from _noted_once(name, is_there, is_not, notes[name])


def _all_or_nothing(
    fact: Fact, at: dict[str, int], committed: bool, undone: bool
) -> Iterator[Complaint]:
    name, kept = fact["transaction"], fact["kept"]
    there = [at[key] for key in kept if key in at]
    if undone and there:
        yield Complaint(INVENTED, f"transaction {name} was rolled back, and is there")
    elif (committed or there) and len(there) < len(kept):
        lost = len(kept) - len(there)
        yield Complaint(LOST, f"{lost} of {len(kept)} transfers of transaction {name}")
    if any(earlier > later for earlier, later in pairwise(there)):
        yield Complaint(DISORDER, f"the transfers of transaction {name}")


def _noted_once(name: str, is_there: bool, is_not: bool, notes: int) -> Iterator[Complaint]:
    """One that kept no transfer, and whose outcome is unknown, may be there or not."""
    if is_there and notes == 0:
        yield Complaint(LOST, f"the note of transaction {name}")
    if notes > 1:
        yield Complaint(DOUBLED, f"transaction {name} was noted {notes} times")
    if notes and is_not:
        yield Complaint(INVENTED, f"transaction {name} is not there, and its note is")
