"""Ways to tamper with evidence, and of what kind the checker's complaint has to be then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.chaos.checker import Evidence, Row
from tests.chaos.checker.complaint import (
    DISORDER,
    DOUBLED,
    INVENTED,
    LOST,
    MISCOUNTED,
    PIPELINE,
    STALE,
)
from tests.chaos.names import (
    ADDED,
    BEGUN,
    COMMITTED,
    HANDLED,
    POLLED,
    REFUSED,
    ROLLED_BACK,
    WRITTEN,
)
from tests.chaos.sample import add, noted

Tampering = Callable[[Evidence], None]
TWO = {"transaction": "two"}
THREE = {"transaction": "three"}
TWO_THIRDS = {"transaction": "three", "kept": ["r", "s"], "undone": []}
SEAT = {"course": "course", "student": "ann"}


def swap(evidence: Evidence, one: Row, other: Row) -> None:
    """Let two messages change their places."""
    places = {one.at: other, other.at: one}
    evidence.log = [
        replace(row, id=places[row.at].id, data=places[row.at].data) if row.at in places else row
        for row in evidence.log
    ]


def acknowledged(name: str, fact: str, **details: object) -> Tampering:
    """Have an actor note one more fact, in its last life."""
    return lambda evidence: evidence.facts[name][-1].append(noted(fact, **details))


def forgotten(name: str, life: int, number: int) -> Tampering:
    """Have an actor not note what it did."""

    def tamper(evidence: Evidence) -> None:
        del evidence.facts[name][life][number]

    return tamper


def appended(stream: str, type: str, **data: object) -> Tampering:
    """Put one more message into the log."""

    def tamper(evidence: Evidence) -> None:
        add(evidence, stream, type, **data)

    return tamper


def join(number: int, **changes: object) -> Tampering:
    """Have a join's row say something else."""

    def tamper(evidence: Evidence) -> None:
        evidence.joins[number] = replace(evidence.joins[number], **changes)  # type: ignore[arg-type]

    return tamper


def outbox(number: int, **changes: object) -> Tampering:
    """Have a message of the outbox say something else, or be there twice."""

    def tamper(evidence: Evidence) -> None:
        changed = replace(evidence.outbox[number], **changes)  # type: ignore[arg-type]
        if changed.id == evidence.outbox[number].id:
            del evidence.outbox[number]
        evidence.outbox.append(changed)

    return tamper


def session(name: str, offset: int) -> Tampering:
    """Have a consumer stand somewhere else."""
    return lambda evidence: evidence.sessions.update({name: offset})


def member(number: int, status: str) -> Tampering:
    """Have a join take a step as something else."""

    def tamper(evidence: Evidence) -> None:
        name, step, _ = evidence.members[number]
        evidence.members[number] = (name, step, status)

    return tamper


def table(name: str, stream: str, value: object) -> Tampering:
    """Have a table of the pipeline say something else."""
    return lambda evidence: getattr(evidence, name).update({stream: value})


CASES: dict[str, tuple[str, Tampering]] = {
    "a write that was acknowledged": (LOST, acknowledged("writer-0", WRITTEN, key="y", position=1)),
    "a write that is elsewhere": (DISORDER, acknowledged("writer-0", WRITTEN, key="c", position=5)),
    "a write that was refused": (INVENTED, acknowledged("writer-0", REFUSED, key="c")),
    "a write that nobody tried": (INVENTED, appended("account-1", "Deposited", key="z")),
    "a write that was written before": (
        DISORDER,
        acknowledged("writer-0", WRITTEN, key="a", position=0),
    ),
    "a transfer that was undone": (INVENTED, appended("transfer-0", "Moved", key="u")),
    "half a transaction": (LOST, acknowledged("transactor-0", BEGUN, **TWO_THIRDS)),
    "a transaction that was committed": (LOST, acknowledged("transactor-0", COMMITTED, **TWO)),
    "one that was rolled back": (INVENTED, acknowledged("transactor-0", ROLLED_BACK, **THREE)),
    "a note of what was rolled back": (INVENTED, appended("note-all", "note", **TWO)),
    "a message that no member handled": (LOST, forgotten("member-1", 0, 0)),
    "one that both members handled": (DOUBLED, acknowledged("member-1", HANDLED, at=70)),
    "one that a member passed over": (DISORDER, forgotten("member-0", 0, 0)),
    "one that a member made up": (INVENTED, acknowledged("member-1", HANDLED, at=5)),
    "a record that was passed over": (DISORDER, forgotten("reader-manual", 0, 0)),
    "a record that nobody got": (LOST, forgotten("reader-manual", 1, 2)),
    "a record that came again": (DOUBLED, acknowledged("reader-auto", POLLED, offset=0, key="k0")),
    "two records lost by one kill": (LOST, forgotten("reader-auto", 0, 1)),
    "a record lost by no kill": (LOST, forgotten("reader-auto", 0, 0)),
    "another record": (DISORDER, acknowledged("reader-manual", POLLED, offset=3, key="k2")),
    "an offset that went back": (LOST, session("reader-manual", 2)),
    "one seat too many": (STALE, appended("seat.taken-z", "seat.taken", key="z", **SEAT)),
    "a step that was counted twice": (MISCOUNTED, join(0, completed=3)),
    "a failure that was not counted": (MISCOUNTED, join(1, failed=0)),
    "a step too many": (MISCOUNTED, join(2, attached=2)),
    "a join that is not resolved": (MISCOUNTED, join(0, status="pending")),
    "one that is resolved too early": (MISCOUNTED, join(2, status="completed")),
    "one with the wrong outcome": (MISCOUNTED, join(1, status="completed")),
    "a step that is taken as failed": (MISCOUNTED, member(0, "failed")),
    "a step that failed and should not": (MISCOUNTED, outbox(0, state="failed")),
    "a step that is not done": (LOST, outbox(0, state="ready")),
    "a step that nobody handled": (LOST, forgotten("dispatcher-0", 0, 0)),
    "two follow-ups": (MISCOUNTED, outbox(4, id="again")),
    "another follow-up": (MISCOUNTED, outbox(4, topic="broken")),
    "a follow-up of nothing": (INVENTED, outbox(4, id="more", payload={"join": "j9"})),
    "an outcome of what is pending": (DOUBLED, appended("outcome-j3", "finished", join="j3")),
    "a step that was added": (LOST, acknowledged("planner-0", ADDED, join="j3", step="s9")),
    "a join that was rolled back": (
        INVENTED,
        acknowledged("planner-0", ROLLED_BACK, transaction="plan"),
    ),
    "a total": (PIPELINE, table("totals", "account-0", 3)),
    "a state": (PIPELINE, table("states", "account-0", (2, "a"))),
}
