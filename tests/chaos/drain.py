"""After the faults, when no new work comes: wait until all is done, or return what is not.

The questions are put to the database in one statement, so that the answers are true together.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress

import psycopg

_UNFINISHED = """
with
-- how much there is of everything
counts as (
  select
    count(*) filter (where m.stream_name like 'transfer-%%') as transfers,
    coalesce(max(m.global_position) filter (where m.stream_name like 'transfer-%%'), 0)
      as last_transfer,
    coalesce(max(m.global_position) filter (where m.stream_name like 'account-%%'), 0)
      as last_account,
    count(*) filter (where m.stream_name = 'seen-table') as seen_by_table,
    count(*) filter (where m.stream_name = 'seen-stream') as seen_by_stream,
    count(*) filter (where m.stream_name = 'queue-mail') as mail,
    count(*) filter (where m.type = 'seat.requested') as requested,
    count(*) filter (where m.type = 'seat.denied') as denied,
    count(*) filter (where m.type = 'seat.taken') as taken,
    count(*) filter (where m.type = 'seat.taken' and m.data ? 'request') as granted,
    count(*) filter (where m.type = 'student.welcomed') as welcomed
  from message_store.messages m
)
select question.text
from counts c, lateral (values
  ('consumer-table has seen all', c.seen_by_table = c.transfers),
  ('consumer-stream has seen all', c.seen_by_stream = c.transfers),
  ('members have handled all', %(member)s = (
    select count(*) from penstock.consumer_positions p
    where p.consumer_id like 'transfer-member-%%' and p.position >= c.last_transfer)),
  ('readers have read all', %(reader)s = (
    select count(*) from penstock.sessions s where s.next_offset >= c.mail)),
  ('requests are decided', c.granted + c.denied = c.requested),
  ('students are welcomed', c.welcomed = c.taken),
  ('the outbox is empty', not exists (
    select from penstock.outbox o
    where o.topic <> 'join.wait' and o.state in ('ready', 'in_progress'))),
  ('joins are resolved', not exists (
    select from penstock.join_progress j
    where j.status = 'pending' and j.completed_steps + j.failed_steps = j.expected_steps)),
  ('the pipeline has processed all', 3 * %(pipeline)s = (
    select count(*) from penstock.tailers t where t.position >= c.last_account))
) as question(text, is_true)
where not question.is_true
"""


def drain(url: str, actors: Iterable[str], seconds: float) -> list[str]:
    """Wait until all work is done, so many seconds at most; return what is not true by then."""
    deadline = time.monotonic() + seconds
    numbers = Counter(name.partition("-")[0] for name in actors)
    while True:
        with suppress(psycopg.OperationalError):
            unfinished = _unfinished(url, numbers)
            if not unfinished or time.monotonic() > deadline:
                return unfinished
        time.sleep(0.3)


def _unfinished(url: str, numbers: Counter[str]) -> list[str]:
    asked = {kind: numbers[kind] for kind in ("member", "reader", "pipeline")}
    with psycopg.connect(url, autocommit=True) as connection:
        return [text for (text,) in connection.execute(_UNFINISHED, asked)]
