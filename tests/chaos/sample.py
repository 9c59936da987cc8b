"""A small run in which all went well, made by hand, for tests that tamper with it."""

from __future__ import annotations

from typing import Any

from tests.chaos.checker import Evidence, JoinRow, OutboxRow, Row
from tests.chaos.checker.evidence import Fact


def noted(fact: str, **details: Any) -> Fact:
    """Return a fact as an actor notes it."""
    return {"fact": fact, **details}


def add(evidence: Evidence, stream: str, type: str, **data: Any) -> int:
    """Append a message to the log and return its global position."""
    position = len(evidence.stream(stream))
    at = 10 * len(evidence.log) + 10  # a log has gaps
    evidence.log.append(Row(f"id {at}", stream, type, position, at, data))
    return at


def honest() -> Evidence:
    """Return the evidence of a run without fault, with outcomes of every kind."""
    evidence = Evidence()
    for add_part in (_accounts, _transfers, _mail, _seats, _joins):
        add_part(evidence)
    return evidence


def _accounts(evidence: Evidence) -> None:
    """One refused, one whose outcome is unknown and that is there, one that is not."""
    for stream, key in [("account-0", "a"), ("account-0", "b"), ("account-1", "c")]:
        at = add(evidence, stream, "Deposited", key=key)
        add(evidence, f"image-{key}", "Imaged", key=key, source=at)
    evidence.facts["pipeline-0"] = [[]]
    evidence.totals = {"account-0": 2, "account-1": 1}
    evidence.states = {"account-0": (2, "b"), "account-1": (1, "c")}
    first = [
        noted("tried", key="a", stream="account-0", expected=-1),
        noted("written", key="a", position=0),
        noted("tried", key="x", stream="account-0", expected=-1),
        noted("refused", key="x"),
        noted("tried", key="b", stream="account-0", expected=0),
        noted("written", key="b", position=1),
        noted("tried", key="c", stream="account-1", expected=-1),
    ]
    second = [noted("tried", key="y", stream="account-1", expected=0)]
    evidence.facts["writer-0"] = [first, second]


def _transfers(evidence: Evidence) -> None:
    """One transaction is committed, one rolled back, and one of which nobody knew, and there."""
    sources = [
        add(evidence, "transfer-0", "Moved", key="p"),
        add(evidence, "transfer-0", "Moved", key="q"),
        add(evidence, "transfer-1", "Moved", key="r"),
    ]
    for source in sources:
        add(evidence, "seen-table", "Seen", source=source)
        add(evidence, "seen-stream", "Seen", source=source)
    for name in ("one", "three"):
        add(evidence, "note-all", "note", transaction=name)
    evidence.facts["transactor-0"] = [
        [
            noted("begun", transaction="one", kept=["p", "q"], undone=["u"]),
            noted("committed", transaction="one"),
            noted("begun", transaction="two", kept=["v"], undone=[]),
            noted("rolled back", transaction="two"),
            noted("begun", transaction="three", kept=["r"], undone=[]),
        ]
    ]
    evidence.facts["consumer-table"] = evidence.facts["consumer-stream"] = [[], []]
    handled = [noted("handled", at=at) for at in sources]
    evidence.facts["member-0"] = [handled[:2], handled[1:2]]
    evidence.facts["member-1"] = [handled[2:]]


def _mail(evidence: Evidence) -> None:
    """One reader goes back; the one that commits by itself lost a record when it was killed."""
    keys = ["k0", "k1", "k2", "k3"]
    sender = []
    for offset, key in enumerate(keys):
        add(evidence, "queue-mail", "Offered", value={"key": key})
        sender.append(noted("tried", key=key, stream="queue-mail"))
        sender.append(noted("written", key=key, position=offset))
    polled = [noted("polled", offset=offset, key=key) for offset, key in enumerate(keys)]
    evidence.facts["sender-0"] = [sender]
    evidence.facts["reader-manual"] = [polled[:3], polled[1:]]
    evidence.facts["reader-auto"] = [polled[:2], polled[3:]]
    evidence.sessions = {"reader-manual": 4, "reader-auto": 4}


def _seats(evidence: Evidence) -> None:
    """A course of two seats: one asked for, one taken by an intruder, and two too few."""
    keys = ["course", "q0", "q1", "q2"]
    add(evidence, "course.opened-course", "course.opened", course="course", seats=2, key="course")
    for key in keys[1:]:
        request = {"course": "course", "student": "joe", "key": key}
        add(evidence, f"seat.requested-{key}", "seat.requested", **request)
    seat = {"course": "course", "student": "joe"}
    seats = [
        add(evidence, "seat.taken-s", "seat.taken", request="q0", **seat),
        add(evidence, "seat.taken-i", "seat.taken", key="i", **seat),
    ]
    for key in keys[2:]:
        add(evidence, f"seat.denied-{key}", "seat.denied", course="course", request=key)
    for taken in seats:
        add(evidence, f"student.welcomed-{taken}", "student.welcomed", seat=taken, **seat)
    evidence.facts["applicant-0"] = [
        [
            fact
            for key, kind in zip(keys, ["course.opened", *["seat.requested"] * 3], strict=True)
            for fact in (
                noted("tried", key=key, stream=f"{kind}-{key}"),
                noted("written", key=key, position=0),
            )
        ]
    ]
    evidence.facts["intruder-0"] = [[noted("tried", key="i", stream="seat.taken-i")]]


def _joins(evidence: Evidence) -> None:
    """One join is completed, one failed, and one has not got all its steps."""
    plans = {"s1": "succeed", "s2": "stumble", "s3": "fail", "s4": "succeed"}
    for step, do in plans.items():
        state = "failed" if do == "fail" else "done"
        evidence.outbox.append(OutboxRow(step, "step", state, {"do": do}))
    for join, topic in (("j1", "finished"), ("j2", "broken")):
        evidence.outbox.append(OutboxRow(f"after {join}", topic, "done", {"join": join}))
        add(evidence, f"outcome-{join}", topic, join=join)
    evidence.joins = [
        JoinRow("j1", 2, 2, 2, 0, "completed", "after j1"),
        JoinRow("j2", 1, 1, 0, 1, "failed", "after j2"),
        JoinRow("j3", 2, 1, 1, 0, "pending", None),
    ]
    evidence.members = [
        ("j1", "s1", "completed"),
        ("j1", "s2", "completed"),
        ("j2", "s3", "failed"),
        ("j3", "s4", "completed"),
    ]
    evidence.facts["planner-0"] = [
        [
            noted("begun", transaction="plan", steps=["s1", "s2"]),
            noted("joined", transaction="plan", join="j1"),
            noted("committed", transaction="plan"),
            noted("added", join="j2", step="s3"),
            noted("added", join="j3", step="s4"),
        ]
    ]
    evidence.facts["dispatcher-0"] = [[noted("handled", message=step) for step in plans]]
