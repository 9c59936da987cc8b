"""When the storm is over and nobody brings new work: wait until all of it is done, or say what is not.

The questions are put to the database in one statement, so that the answers are true together.
"""

from __future__ import annotations

import time
from contextlib import suppress

import psycopg

_LAST = "(select max(m.global_position) from message_store.messages m where {where})"
_COUNT = "(select count(*) from message_store.messages m where {where})"


def _category(name: str) -> str:
    return f"message_store.category(m.stream_name) = '{name}'"


_TRANSFERS = _COUNT.format(where=_category("transfer"))
_LAST_TRANSFER = _LAST.format(where=_category("transfer"))
_LAST_ACCOUNT = _LAST.format(where=_category("account"))

QUESTIONS = {
    "consumer-table has seen all": f"{_COUNT.format(where="m.stream_name = 'seen-table'")}"
    f" = {_TRANSFERS}",
    "consumer-stream has seen all": f"{_COUNT.format(where="m.stream_name = 'seen-stream'")}"
    f" = {_TRANSFERS}",
    "members have handled all": "(select coalesce(min(p.position), 0) from"
    " penstock.consumer_positions p where p.consumer_id like 'transfer-member-%')"
    f" >= coalesce({_LAST_TRANSFER}, 0)",
    "readers have read all": "not exists (select from penstock.sessions s where s.next_offset <"
    f" {_COUNT.format(where="m.stream_name = 'queue-mail'")})",
    "requests are decided": f"{_COUNT.format(where="m.type = 'seat.requested'")} ="
    f" {_COUNT.format(where="m.type = 'seat.denied' or m.type = 'seat.taken' and m.data ? 'request'")}",
    "students are welcomed": f"{_COUNT.format(where="m.type = 'seat.taken'")} ="
    f" {_COUNT.format(where="m.type = 'student.welcomed'")}",
    "the outbox is empty": "not exists (select from penstock.outbox o where o.topic <> 'join.wait'"
    " and o.state in ('ready', 'in_progress'))",
    "joins are resolved": "not exists (select from penstock.joins j where j.status = 'pending'"
    " and j.completed_steps + j.failed_steps = j.expected_steps)",
    "pipelines have processed all": "not exists (select from penstock.processors p left join"
    " penstock.tailers t using (pipeline, processor)"
    f" where t.position is null or t.position < coalesce({_LAST_ACCOUNT}, 0))",
}


def drain(url: str, seconds: float) -> list[str]:
    """Wait until all work is done, so many seconds at most; return what is not true by then."""
    deadline = time.monotonic() + seconds
    unfinished = list(QUESTIONS)
    while unfinished and time.monotonic() < deadline:
        with suppress(psycopg.OperationalError):
            unfinished = _ask(url)
        time.sleep(0.2)
    return unfinished


def _ask(url: str) -> list[str]:
    question = f"select {', '.join(QUESTIONS.values())}"
    with psycopg.connect(url, autocommit=True) as connection:
        (answers,) = connection.execute(question.encode()).fetchall()
    return [name for name, yes in zip(QUESTIONS, answers, strict=True) if not yes]
