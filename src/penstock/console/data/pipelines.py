"""Pipelines, and their processors with their steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

from penstock.admin import processors as operations
from penstock.admin.processors import RUN, ProcessorStatus
from penstock.console.data.log import COLUMNS, MessageRow, as_row, messages, utc
from penstock.console.data.pages import (
    COUNT_UP_TO,
    Count,
    Page,
    as_shown,
    bounded,
    check_page,
    counted,
    cursor,
    place,
    query,
)
from penstock.database.operation import Row, only_value
from penstock.errors import ProcessorNotFound
from penstock.message import check_text, names
from penstock.store_async import AsyncStore

#: messages of a step that are shown
SAMPLE = 5


@dataclass(frozen=True, slots=True)
class Tailer:
    """How far a processor has read a queue."""

    queue: str
    position: int
    lag: Count


@dataclass(frozen=True, slots=True)
class Processor:
    """The state of a processor."""

    pipeline: str
    processor: str
    #: source, stream, sink, projection, table or archive
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
    retired_at: datetime | None
    tailers: tuple[Tailer, ...]
    lag: Count
    seconds_behind: float
    #: the session that runs it now
    running: str | None


@dataclass(frozen=True, slots=True)
class PipelineRow:
    """A pipeline in a list."""

    pipeline: str
    processors: int
    failed: int
    lag: Count
    last_step_at: datetime | None
    #: the session that runs it now
    running: str | None


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
class ProcessorDetail:
    """A processor with its newest steps and samples."""

    processor: Processor
    backing_stream: str
    steps: Page[StepRow]
    #: begun, and neither committed nor replaced
    open_snapshot: StepRow | None
    tables: tuple[str, ...]
    #: of the newest step that published something
    sample_in: tuple[MessageRow, ...]
    sample_out: tuple[MessageRow, ...]


async def pipelines(store: AsyncStore) -> tuple[PipelineRow, ...]:
    """Return the pipelines that have run on this database."""
    by_name: dict[str, list[Processor]] = {}
    for one in await processors(store):
        by_name.setdefault(one.pipeline, []).append(one)
    sql: LiteralString = """
select n.name, (
  select min(a.application_name || ', server process ' || a.pid)
  from pg_catalog.pg_locks l join pg_catalog.pg_stat_activity a using (pid)
  where l.locktype = 'advisory' and l.database = a.datid and a.datname = current_database()
    and l.classid = %s::bigint::oid and l.objsubid = 2 and l.granted
    and l.objid = hashtext(n.name)::oid)
from unnest(%s::text[]) as n(name)"""
    runs = dict(await store.run(query("runs", sql, (RUN, list(by_name)), list)))
    return tuple(
        PipelineRow(
            pipeline=name,
            processors=len(found),
            failed=sum(one.error is not None and one.retired_at is None for one in found),
            lag=_sum(one.lag for one in found if one.retired_at is None),
            last_step_at=max((one.last_step_at for one in found if one.last_step_at), default=None),
            running=runs[name],
        )
        for name, found in by_name.items()
    )


async def processors(store: AsyncStore, pipeline: str | None = None) -> tuple[Processor, ...]:
    """Return the processors of a pipeline, or of all, at most 1,000."""
    store.context.require_penstock("pipelines")
    if pipeline is not None:
        check_text("pipeline", pipeline)
    found = await store.run(bounded(operations.processors(pipeline, COUNT_UP_TO)))
    if pipeline is not None and not found:
        raise ProcessorNotFound(pipeline)
    return tuple(_processor(one) for one in found)


def _processor(one: ProcessorStatus) -> Processor:
    tailers = tuple(Tailer(t.queue, t.position, counted(t.lag)) for t in one.tailers)
    return Processor(
        *(one.pipeline, one.processor, one.kind, one.generation, one.rebuilding, one.steps),
        *(one.messages_in, one.messages_out, one.last_step_at, one.last_step_seconds),
        *(one.error, one.error_at, one.retired_at, tailers, _sum(t.lag for t in tailers)),
        max((t.seconds_behind for t in one.tailers), default=0.0),
        one.running,
    )


def _sum(counts: Iterable[Count]) -> Count:
    several = list(counts)
    return Count(sum(one.value for one in several), any(one.at_least for one in several))


async def processor(
    store: AsyncStore, pipeline: str, name: str, after: str | None = None, limit: int = 20
) -> ProcessorDetail:
    """Return a processor with its newest steps, or raise `ProcessorNotFound`."""
    check_text("processor", name)
    check_page(limit)
    found = next((one for one in await processors(store, pipeline) if one.processor == name), None)
    if found is None:
        raise ProcessorNotFound(f"{pipeline}.{name}")
    stream_name = f"{pipeline}:try-{name}"
    listed, newest = await steps(store, stream_name, after, limit)
    tables: LiteralString = (
        "select tables from penstock.processors where pipeline = %s and processor = %s"
    )
    upserted = await store.run(query("tables", tables, (pipeline, name), only_value))
    published = next((one for one in listed.items if one.published), None)
    return ProcessorDetail(
        processor=found,
        backing_stream=stream_name,
        steps=listed,
        open_snapshot=newest if newest is not None and newest.committed_at is None else None,
        tables=tuple(upserted),
        sample_in=() if published is None else await inputs_of(store, published, SAMPLE),
        sample_out=() if published is None else await outputs_of(store, published, SAMPLE),
    )


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
