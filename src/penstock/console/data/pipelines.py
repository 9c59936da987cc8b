"""Pipelines, and their processors with their steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString

from penstock.admin import processors as operations
from penstock.admin.processors import RUN, ProcessorStatus
from penstock.console.data.log import MessageRow
from penstock.console.data.pages import (
    COUNT_UP_TO,
    Count,
    Page,
    bounded,
    check_page,
    counted,
    query,
)
from penstock.console.data.steps import StepRow, inputs_of, outputs_of, steps
from penstock.database.operation import only_value
from penstock.errors import ProcessorNotFound
from penstock.message import check_text
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
    runs: dict[str, str | None] = dict(
        await store.run(query("runs", sql, (RUN, list(by_name)), list))
    )
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
        pipeline=one.pipeline,
        processor=one.processor,
        kind=one.kind,
        generation=one.generation,
        rebuilding=one.rebuilding,
        steps=one.steps,
        messages_in=one.messages_in,
        messages_out=one.messages_out,
        last_step_at=one.last_step_at,
        last_step_seconds=one.last_step_seconds,
        error=one.error,
        error_at=one.error_at,
        retired_at=one.retired_at,
        tailers=tailers,
        lag=_sum(t.lag for t in tailers),
        seconds_behind=max((t.seconds_behind for t in one.tailers), default=0.0),
        running=one.running,
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
