"""Joins: their counters are what became of their steps, and each complete one was resolved once.

The steps' own rows say what became of them, and those are as planned: a step fails if it was to.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.chaos.checker.complaint import DOUBLED, INVENTED, LOST, MISCOUNTED, Complaint
from tests.chaos.checker.evidence import Evidence, Fact, JoinRow, OutboxRow
from tests.chaos.names import (
    ADDED,
    BEGUN,
    BROKEN,
    COMMITTED,
    FINISHED,
    HANDLED,
    JOINED,
    OUTCOME,
    ROLLED_BACK,
    STEP,
)

_COUNTED = {"done": "completed", "failed": "failed", "ready": "pending", "in_progress": "pending"}


def check_joins(evidence: Evidence) -> Iterator[Complaint]:
    steps = {row.id: row for row in evidence.outbox if row.topic == STEP}
    members: dict[str, dict[str, str]] = defaultdict(dict)
    for join, step, status in evidence.members:
        members[join][step] = status
    yield from _steps_as_planned(evidence, steps)
    yield from _as_promised(evidence, members)
    follow_ups: dict[str, list[OutboxRow]] = defaultdict(list)
    for message in evidence.outbox:
        if message.topic in (FINISHED, BROKEN):
            follow_ups[message.payload["join"]].append(message)
    outcomes = Counter((row.data["join"], row.type) for row in evidence.category(OUTCOME))
    for row in evidence.joins:
        yield from _counted(row, members[row.id], steps)
        yield from _resolved_once(row, follow_ups.pop(row.id, []), outcomes)
    for join in follow_ups:
        yield Complaint(INVENTED, f"something followed from join {join}, which is not there")


def _steps_as_planned(evidence: Evidence, steps: dict[str, OutboxRow]) -> Iterator[Complaint]:
    handled = {fact.get("message") for fact in evidence.noted(HANDLED)}
    for row in steps.values():
        wanted = "failed" if row.payload["do"] == "fail" else "done"
        if row.state not in ("done", "failed"):
            yield Complaint(LOST, f"step {row.id} is still {row.state}")
        elif row.state != wanted:
            yield Complaint(MISCOUNTED, f"step {row.id} is {row.state}, not {wanted}")
        if row.state in ("done", "failed") and row.id not in handled:
            yield Complaint(LOST, f"step {row.id} is {row.state}, and nobody has handled it")


def _as_promised(evidence: Evidence, members: dict[str, dict[str, str]]) -> Iterator[Complaint]:
    begun = {
        fact["transaction"]: fact["steps"] for fact in evidence.noted(BEGUN) if "steps" in fact
    }
    joins = {fact["transaction"]: fact["join"] for fact in evidence.noted(JOINED)}
    known = {join.id for join in evidence.joins}
    for fact in evidence.noted(COMMITTED, ROLLED_BACK):
        if fact["transaction"] in joins:
            steps = begun[fact["transaction"]]
            yield from _all_or_nothing(fact, joins[fact["transaction"]], steps, members, known)
    for fact in evidence.noted(ADDED):
        if fact["step"] not in members[fact["join"]]:
            yield Complaint(LOST, f"step {fact['step']} of join {fact['join']}")


def _all_or_nothing(
    fact: Fact, join: str, steps: list[str], members: dict[str, dict[str, str]], known: set[str]
) -> Iterator[Complaint]:
    if fact["fact"] == COMMITTED and (join not in known or set(members[join]) != set(steps)):
        yield Complaint(LOST, f"steps of join {join}, or all of it")
    if fact["fact"] == ROLLED_BACK and join in known:
        yield Complaint(INVENTED, f"join {join} was rolled back, and is there")


def _counted(
    join: JoinRow, members: dict[str, str], steps: dict[str, OutboxRow]
) -> Iterator[Complaint]:
    found = Counter(_COUNTED[steps[message].state] for message in members if message in steps)
    wanted = (len(members), found["completed"], found["failed"])
    if (join.attached, join.completed, join.failed) != wanted:
        text = f"join {join.id} counts {join.attached}, {join.completed} and {join.failed}"
        yield Complaint(MISCOUNTED, f"{text}; its steps {wanted}")
    for message, status in members.items():
        if message not in steps or status != _COUNTED[steps[message].state]:
            yield Complaint(MISCOUNTED, f"join {join.id} takes step {message} as {status}")


def _resolved_once(
    join: JoinRow, follow_ups: list[OutboxRow], outcomes: Counter[tuple[str, str]]
) -> Iterator[Complaint]:
    complete = join.completed + join.failed == join.expected
    wanted = ("failed" if join.failed else "completed") if complete else "pending"
    topic = BROKEN if join.failed else FINISHED
    if join.status != wanted:
        yield Complaint(MISCOUNTED, f"join {join.id} is {join.status}, not {wanted}")
    if [(row.id, row.topic) for row in follow_ups] != [(join.follow_up, topic)] * complete:
        text = f"join {join.id} is {wanted}, and was followed by {len(follow_ups)} messages"
        yield Complaint(MISCOUNTED, text)
    handled = outcomes[join.id, topic]
    if handled != sum(outcomes[join.id, each] for each in (BROKEN, FINISHED)) or handled > complete:
        yield Complaint(DOUBLED, f"the outcome of join {join.id}")
    elif handled < complete:
        yield Complaint(LOST, f"the outcome of join {join.id}")
