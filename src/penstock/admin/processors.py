"""The processors of pipelines, from the database alone: positions, lag, last step, errors.

A pipeline has one run at a time, and a processor one step: each holds an advisory lock, by which
its session is found. `penstock.pipeline.connection` describes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString

from penstock.database.operation import Operation, Row, call, only_value

#: our third and fourth class of advisory locks: of runs, and of processors
RUN = 1885693287
PROCESSOR = 1885693288
MOST = 100_000  # lag is counted no further
_PROCESSORS: LiteralString = """
select p.pipeline, p.processor, p.kind, p.generation, p.rebuilding, s.steps, s.messages_in,
  s.messages_out, s.last_step_at, s.last_step_seconds, p.error, p.error_at, p.retired_at,
  coalesce((
    select jsonb_agg(jsonb_build_array(t.queue, t.position, t.lag, penstock.seconds_since(t.since))
      order by t.queue)
    from (
      select e.key as queue, e.value::bigint as position, w.lag, w.since
      from jsonb_each_text(s.tailers) e
      cross join lateral (
        -- once, and not for each message: it is volatile
        select case when message_store.is_category(e.key::varchar)
          then penstock.category_head(e.key::varchar) end as head offset 0
      ) h
      cross join lateral (
        -- what it has not read of a queue, a category or a stream, up to where that is complete;
        -- of an archived segment that it has read in part, at most so many
        select least(count(*) + coalesce((
            select sum(least(a.message_count,
              a.highest_position - greatest(a.lowest_position - 1, e.value::bigint)))
            from penstock.archive_segments a
            where a.category = e.key and a.highest_position > e.value::bigint), 0),
          %(most)s)::bigint as lag, min(w.time) as since
        from (
          (select m.time from message_store.messages m
           where message_store.is_category(e.key::varchar)
             and (message_store.category(m.stream_name), m.global_position)
               > (e.key, e.value::bigint)
             and (message_store.category(m.stream_name), m.global_position)
               <= (e.key, h.head)
           order by message_store.category(m.stream_name), m.global_position limit %(most)s)
          union all
          (select m.time from message_store.messages m
           where not message_store.is_category(e.key::varchar)
             and m.stream_name = e.key and m.position > e.value::bigint
           order by m.position limit %(most)s)
        ) w
      ) w
    ) t), '[]'),
  (select min(a.application_name || ', server process ' || a.pid)
   from pg_catalog.pg_locks l join pg_catalog.pg_stat_activity a using (pid)
   where l.locktype = 'advisory' and l.database = a.datid and a.datname = current_database()
     and l.classid = %(kind)s::bigint::oid and l.objsubid = 2 and l.granted
     and l.objid = hashtext(p.pipeline || '.' || p.processor)::oid)
from penstock.processors p
cross join lateral penstock.latest_processor_progress(p.pipeline, p.processor) s
where %(pipeline)s::text is null or p.pipeline = %(pipeline)s
order by p.pipeline, p.processor
limit 1000
"""


@dataclass(frozen=True)
class TailerStatus:
    """How far a processor has read a queue, and how many messages it has not read."""

    queue: str
    position: int
    lag: int
    #: how long the first of them has waited
    seconds_behind: float = 0.0


@dataclass(frozen=True)
class ProcessorStatus:
    """The state of a processor."""

    pipeline: str
    processor: str
    kind: str
    generation: int
    rebuilding: bool
    steps: int
    messages_in: int
    messages_out: int
    last_step_at: datetime | None
    last_step_seconds: float | None
    error: str | None
    error_at: datetime | None
    #: when it was retired: retention and alarms ignore it
    retired_at: datetime | None
    tailers: tuple[TailerStatus, ...]
    #: the session that runs it now
    running: str | None = None

    @property
    def lag(self) -> int:
        """How many messages it has not read, counted up to a hundred thousand for each queue."""
        return sum(one.lag for one in self.tailers)


def processors(
    pipeline: str | None = None, count_up_to: int = MOST
) -> Operation[list[ProcessorStatus]]:
    """Read the state of every processor that has run on this database, or of one pipeline's."""
    arguments = {"pipeline": pipeline, "most": count_up_to, "kind": PROCESSOR}

    def decode(rows: list[Row]) -> list[ProcessorStatus]:
        return [
            ProcessorStatus(*(*facts, tuple(TailerStatus(*one) for one in tailers), running))
            for *facts, tailers, running in rows
        ]

    return call("processors", _PROCESSORS, arguments, decode)


def hold_off(pipeline: str, processor: str) -> Operation[bool]:
    """Keep a processor from starting until the transaction ends; False if it runs already."""
    sql = "select pg_try_advisory_xact_lock(%s, hashtext(%s))"
    return call("hold_off", sql, (PROCESSOR, f"{pipeline}.{processor}"), only_value)


def retire(pipeline: str, processor: str) -> Operation[bool]:
    """Retire a processor that is held off; the result is whether there is one."""
    sql = "select penstock.retire_processor(%s, %s)"
    return call("retire_processor", sql, (pipeline, processor), only_value)
