"""The checker can say no: evidence that was tampered with is noticed, whatever was done to it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tests.chaos.checker import Evidence, judge
from tests.chaos.checker.complaint import DISORDER, STALE
from tests.chaos.checker.evidence import read_facts
from tests.chaos.checker.verdict import NEEDED
from tests.chaos.sample import add, honest, noted
from tests.chaos.tampering import CASES, swap


def kinds(evidence: Evidence) -> set[str]:
    """Return which kinds of complaints there are."""
    return {one.kind for one in judge(evidence).complaints}


def test_an_honest_run_is_all_zero() -> None:
    verdict = judge(honest())

    assert verdict.complaints == []
    assert verdict.table().endswith("verdict: all zero")


def test_a_run_in_which_nothing_happened_is_no_good_run() -> None:
    assert judge(honest()).idle == []
    assert judge(Evidence()).idle == list(NEEDED)


def test_a_verdict_shows_how_often_each_promise_was_broken() -> None:
    evidence = honest()
    evidence.log.pop()

    table = judge(evidence).table()

    assert table.endswith("verdict: BROKEN")
    assert "lost: the outcome of join j2" in table


def test_every_message_that_is_deleted_is_missed() -> None:
    for number, row in enumerate(honest().log):
        evidence = honest()
        del evidence.log[number]

        assert kinds(evidence), row


def test_every_message_that_is_doubled_is_noticed() -> None:
    for row in honest().log:
        evidence = honest()
        add(evidence, row.stream, row.type, **row.data)

        assert kinds(evidence), row


@pytest.mark.parametrize("name", ["account-0", "transfer-0", "seen-table", "queue-mail", "image"])
def test_every_two_messages_that_are_swapped_are_noticed(name: str) -> None:
    for earlier, later in pairwise(honest().stream(name) or honest().category(name)):
        evidence = honest()
        swap(evidence, earlier, later)

        assert kinds(evidence), (earlier, later)


@pytest.mark.parametrize("case", CASES)
def test_what_was_tampered_with_is_named(case: str) -> None:
    kind, tamper = CASES[case]
    evidence = honest()

    tamper(evidence)

    assert kind in kinds(evidence)


def test_a_denial_while_there_is_a_seat_is_a_stale_decision() -> None:
    evidence = honest()
    taken, denied = evidence.category("seat.taken")[1], evidence.category("seat.denied")[0]

    places = {taken.at: denied, denied.at: taken}
    evidence.log = [
        replace(places[row.at], at=row.at) if row.at in places else row for row in evidence.log
    ]

    assert STALE in kinds(evidence)


def test_requests_that_were_not_decided_as_they_came_are_out_of_order() -> None:
    evidence = honest()
    first, second = evidence.category("seat.denied")

    swap(evidence, first, second)

    assert kinds(evidence) == {DISORDER}


def test_half_a_line_is_no_fact(tmp_path: Path) -> None:
    whole = '{"fact": "tried", "key": "a"}\n'
    (tmp_path / "writer-0.0000.facts").write_text(whole + '{"fact": "writ')
    (tmp_path / "writer-0.0001.facts").write_text(whole)

    facts = read_facts(tmp_path)

    tried = noted("tried", key="a")
    assert facts == {"writer-0": [[tried], [tried]]}
