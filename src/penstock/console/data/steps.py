"""The steps of processors, as their backing streams record them.

A step has a Snapshot, which says what it reads, and an Attempt once it is committed, in the stream
`{pipeline}:try-{processor}`. The Attempt is written in the transaction of the outputs, right after
them: so the step of an output is the first one in the category `{pipeline}:try` after it that has
its hash.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

from penstock.console.data.log import COLUMNS, MessageRow, as_row, messages, utc
from penstock.console.data.pages import Page, as_shown, cursor, place, query
from penstock.database.operation import Row
from penstock.message import names
from penstock.store_async import AsyncStore

#: records of a pipeline after a message that are looked at for the step that read it
LOOK_AT = 1_000


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step of a processor: what it was to read, and what it has published."""

    #: the hash of its Snapshot: the delivery that is in the metadata of its outputs
    delivery: str
    #: by queue: after which position, up to which
    ranges: Mapping[str, tuple[int, int]]
    begun_at: datetime | None
    committed_at: datetime | None
    published: int
    first_position: int | None
    last_position: int | None
    #: positions of its Snapshot and of its Attempt in the log
    snapshot_position: int | None
    attempt_position: int | None
    tables: Mapping[str, Any]
    cursor: Any


@dataclass(frozen=True, slots=True)
class FoundStep:
    """A step, and whose it is."""

    pipeline: str
    processor: str
    step: StepRow

    @property
    def name(self) -> str:
        """The pipeline and the processor."""
        return f"{self.pipeline}.{self.processor}"


@dataclass(frozen=True, slots=True)
class Tailing:
    """How far a processor has read a queue."""

    pipeline: str
    processor: str
    queue: str
    position: int

    @property
    def name(self) -> str:
        """The pipeline and the processor."""
        return f"{self.pipeline}.{self.processor}"

    @property
    def of_category(self) -> bool:
        """Whether the queue is a category, whose positions are global."""
        return names.is_category(self.queue)


_RECORDS: LiteralString = """
select m.position, m.type, m.data, m.time, m.global_position
from message_store.messages m
where m.stream_name = %s and m.position < %s and pg_column_size(m.data) <= 1000000
order by m.position desc limit %s"""


async def steps(
    store: AsyncStore, stream_name: str, after: str | None, limit: int
) -> tuple[Page[StepRow], StepRow | None]:
    """Return the steps that a backing stream records, newest first; and the newest of all."""
    [below] = place(after, int) or (2**63 - 1,)
    most = 2 * limit + 2  # a step has two records at most
    rows = await store.run(query("steps", _RECORDS, (stream_name, below, most), list))
    found: list[tuple[int, StepRow]] = []
    attempt: Row | None = None
    for row in rows:
        if row[1] == "Snapshot":
            same = attempt is not None and attempt[2].get("hash") == row[2].get("hash")
            found.append((row[0], _step(row, attempt if same else None)))
            attempt = None
        else:
            if attempt is not None:  # retention has removed its Snapshot
                found.append((attempt[0], _step(None, attempt)))
            attempt = row
    if attempt is not None and len(rows) < most:
        found.append((attempt[0], _step(None, attempt)))
    shown = found[:limit]
    goes_on = len(found) > limit or len(rows) == most
    end = cursor(shown[-1][0]) if shown and goes_on else None
    newest = found[0][1] if found and after is None else None
    return Page(tuple(one for _, one in shown), end), newest


def _step(snapshot: Row | None, attempt: Row | None) -> StepRow:
    planned: Mapping[str, Any] = {} if snapshot is None else snapshot[2]
    made: Mapping[str, Any] = {} if attempt is None else attempt[2]
    return StepRow(
        delivery=str(planned.get("hash") or made.get("hash")),
        ranges={queue: (low, high) for queue, (low, high) in planned.get("ranges", {}).items()},
        begun_at=None if snapshot is None else utc(snapshot[3]),
        committed_at=None if attempt is None else utc(attempt[3]),
        published=made.get("published", 0),
        first_position=made.get("first_position"),
        last_position=made.get("last_position"),
        snapshot_position=None if snapshot is None else snapshot[4],
        attempt_position=None if attempt is None else attempt[4],
        tables=planned.get("tables", {}),
        cursor=as_shown(made.get("cursor", planned.get("cursor"))).value,
    )


async def inputs_of(store: AsyncStore, step: StepRow, limit: int) -> tuple[MessageRow, ...]:
    """Return the last messages that a step has read, at most so many of each queue."""
    found: list[MessageRow] = []
    for queue, (low, high) in list(step.ranges.items())[:10]:
        read = await messages(store, queue, after=cursor(high + 1), limit=limit)
        axis = "global_position" if names.is_category(queue) else "position"
        found += (one for one in read.items if getattr(one, axis) > low)
    return tuple(found)


async def outputs_of(store: AsyncStore, step: StepRow, limit: int) -> tuple[MessageRow, ...]:
    """Return the first messages that a step has published, at most so many."""
    if step.first_position is None or step.last_position is None:
        return ()
    sql: LiteralString = f"""
select {COLUMNS} from (
  select m.* from message_store.messages m
  where m.global_position >= %(first)s and m.global_position <= %(last)s
  order by m.global_position limit 1000
) m
where m.metadata ->> 'delivery' = %(delivery)s order by m.global_position limit %(most)s"""  # noqa: S608
    arguments = {
        "first": step.first_position,
        "last": step.last_position,
        "delivery": step.delivery,
        "most": limit,
    }
    rows = await store.run(query("outputs", sql, arguments, list))
    return tuple(as_row(row) for row in rows)


_NEAR: LiteralString = """
with attempt as materialized (
  select a.* from (
    select m.* from message_store.messages m
    where (message_store.category(m.stream_name), m.global_position) > (%(category)s, %(after)s)
      and (message_store.category(m.stream_name), m.global_position)
        <= (%(category)s, 9223372036854775807)
    order by message_store.category(m.stream_name), m.global_position limit %(look_at)s
  ) a
  where a.data ->> 'hash' = %(delivery)s and a.type <> 'Snapshot' limit 1
)
select r.position, r.type, r.data, r.time, r.global_position, a.stream_name
from attempt a
cross join lateral (
  select m.* from message_store.messages m
  where m.stream_name = a.stream_name and m.position <= a.position
  order by m.position desc limit 2
) r
order by r.position desc"""
_PIPELINE: LiteralString = (
    "select metadata ->> 'pipeline' from message_store.messages where global_position = %s"
)


async def step_of_delivery(
    store: AsyncStore, global_position: int, delivery: str
) -> FoundStep | None:
    """Return the step that published the message at a position."""
    named = await store.run(query("pipeline", _PIPELINE, (global_position,), list))
    if not named or named[0][0] is None:
        return None
    pipeline = named[0][0]
    arguments = {
        "category": f"{pipeline}:try",
        "after": global_position,
        "look_at": LOOK_AT,
        "delivery": delivery,
    }
    rows = await store.run(query("step", _NEAR, arguments, list))
    if not rows:
        return None
    processor = rows[0][5].removeprefix(f"{pipeline}:try-")
    has_snapshot = len(rows) == 2 and rows[1][2].get("hash") == delivery
    return FoundStep(pipeline, processor, _step(rows[1] if has_snapshot else None, rows[0]))


_TAILINGS: LiteralString = """
select p.pipeline, p.processor, t.key, t.value::bigint
from penstock.processors p
cross join lateral penstock.latest_processor_progress(p.pipeline, p.processor) s
cross join lateral jsonb_each_text(s.tailers) t
where p.retired_at is null
order by 1, 2, 3 limit 1000"""


async def tailings(store: AsyncStore) -> list[Tailing]:
    """Return which processor has read which queue up to where."""
    return await store.run(
        query("tailings", _TAILINGS, (), lambda rows: [Tailing(*row) for row in rows])
    )


#: the last Snapshot after the message whose range has it, and what was recorded next
_COVERING: LiteralString = """
with recorded as materialized (
  select m.* from message_store.messages m
  where (message_store.category(m.stream_name), m.global_position) > (%(category)s, %(after)s)
    and (message_store.category(m.stream_name), m.global_position)
      <= (%(category)s, 9223372036854775807)
  order by message_store.category(m.stream_name), m.global_position limit %(look_at)s
), covering as materialized (
  select r.* from recorded r
  where r.stream_name = %(stream)s and r.type = 'Snapshot'
    and (r.data #>> array['ranges', %(queue)s, '0'])::bigint < %(at)s
    and (r.data #>> array['ranges', %(queue)s, '1'])::bigint >= %(at)s
  order by r.position desc limit 1
)
select c.position, c.type, c.data, c.time, c.global_position from covering c
union all
select n.position, n.type, n.data, n.time, n.global_position from covering c
cross join lateral (
  select m.* from message_store.messages m
  where m.stream_name = c.stream_name and m.position = c.position + 1
) n
order by 1"""


async def step_that_read(
    store: AsyncStore, reader: Tailing, at: int, global_position: int
) -> FoundStep | None:
    """Return the last step that has read a message, by the thousand records after it.

    `at` is the message's position in the queue: its global one, if that is a category.
    """
    arguments = {
        "category": f"{reader.pipeline}:try",
        "stream": f"{reader.pipeline}:try-{reader.processor}",
        "queue": reader.queue,
        "at": at,
        "after": global_position,
        "look_at": LOOK_AT,
    }
    rows = await store.run(query("covering", _COVERING, arguments, list))
    if not rows:
        return None
    committed = len(rows) == 2 and rows[1][1] != "Snapshot"
    step = _step(rows[0], rows[1] if committed else None)
    return FoundStep(reader.pipeline, reader.processor, step)
