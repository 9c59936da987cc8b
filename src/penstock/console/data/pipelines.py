"""Pipelines: their graphs, processors with their steps, and the tables of the lake."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.console.data.log import MessageRow
from penstock.console.data.pages import Count, Page
from penstock.store_async import AsyncStore


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
class Node:
    """A node of a graph: a processor, a queue or a table."""

    #: unique in the graph: `processor:invoices`, `queue:order`, `table:shop.orders`
    id: str
    #: processor, queue, table or lake
    kind: str
    name: str
    #: from the left, 0 first
    column: int
    processor: Processor | None = None


@dataclass(frozen=True, slots=True)
class Edge:
    """An arrow of a graph."""

    source: str
    target: str
    #: reads, looks up, publishes, errors, upserts, writes
    what: str


@dataclass(frozen=True, slots=True)
class Graph:
    """A pipeline's graph."""

    pipeline: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    #: whether it comes from the pipeline's declaration. If not, from what its steps have read and
    #: written lately, which may not be all
    declared: bool


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


@dataclass(frozen=True, slots=True)
class LakeTable:
    """A table of the lake."""

    name: str
    rows: int
    files: int
    size_in_bytes: int
    snapshots: int
    last_commit: datetime | None
    written_by: str | None
    location: str


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """A snapshot of a table of the lake."""

    snapshot_id: int
    committed_at: datetime
    operation: str
    added_rows: int | None
    total_rows: int | None
    #: of the pipeline's step that wrote it
    pipeline: str | None
    processor: str | None
    delivery: str | None


async def pipelines(store: AsyncStore) -> tuple[PipelineRow, ...]:
    """Return the pipelines that have run on this database."""
    raise NotImplementedError


async def processors(store: AsyncStore, pipeline: str | None = None) -> tuple[Processor, ...]:
    """Return the processors of a pipeline, or of all."""
    raise NotImplementedError


async def graph(store: AsyncStore, pipeline: str, declared: Iterable[Any] = ()) -> Graph:
    """Return a pipeline's graph, from its declaration if it is among the `Pipeline`s given."""
    raise NotImplementedError


async def processor(
    store: AsyncStore, pipeline: str, name: str, after: str | None = None, limit: int = 20
) -> ProcessorDetail:
    """Return a processor with its newest steps, or raise `ProcessorNotFound`."""
    raise NotImplementedError


async def lake_tables(store: AsyncStore) -> tuple[LakeTable, ...]:
    """Return the tables of the lake, by one file each; none if the store has no warehouse."""
    raise NotImplementedError


async def lake_table(store: AsyncStore, name: str) -> tuple[LakeTable, tuple[TableSnapshot, ...]]:
    """Return a table and its newest 200 snapshots."""
    raise NotImplementedError
