"""A pipeline as a graph: from its declaration, or from what its steps have read and written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, LiteralString

from penstock.console.data.pages import query
from penstock.console.data.pipelines import Processor, processors
from penstock.store_async import AsyncStore

#: steps of a processor that are looked at for what they published
LOOK_AT = 20


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


async def graph(store: AsyncStore, pipeline: str, declared: Iterable[Any] = ()) -> Graph:
    """Return a pipeline's graph, from its declaration if it is among the `Pipeline`s given."""
    declaration = next((one for one in declared if one.name == pipeline), None)
    known = await _known(store, pipeline, optional=declaration is not None)
    if declaration is not None:
        edges = list(_declared_edges(declaration))
        names = dict.fromkeys(declaration.processors)
    else:
        edges = await _observed_edges(store, pipeline, known)
        names = dict.fromkeys(known)
    ids = dict.fromkeys([f"processor:{name}" for name in names])
    ids |= dict.fromkeys(id for edge in edges for id in (edge.source, edge.target))
    columns = _columns(list(ids), edges)
    nodes = [_node(id, columns[id], known) for id in ids]
    ordered = sorted(nodes, key=lambda one: (one.column, one.kind, one.name))
    return Graph(pipeline, tuple(ordered), tuple(edges), declaration is not None)


def _node(id: str, column: int, known: Mapping[str, Processor]) -> Node:
    kind, name = id.split(":", 1)
    return Node(id, kind, name, column, known.get(name) if kind == "processor" else None)


async def _known(store: AsyncStore, pipeline: str, *, optional: bool) -> dict[str, Processor]:
    """Return the pipeline's processors; a declared pipeline may not have run yet."""
    every = await processors(store, None if optional else pipeline)
    return {one.processor: one for one in every if one.pipeline == pipeline}


def _declared_edges(pipeline: Any) -> Iterable[Edge]:
    """Yield the arrows of a `Pipeline`, which is not imported here: it needs Spark."""
    for one in pipeline.processors.values():
        id = f"processor:{one.name}"
        yield from (Edge(f"queue:{queue}", id, "reads") for queue in one.reads)
        yield from (Edge(f"queue:{queue}", id, "looks up") for queue in one.looks_up)
        yield from (Edge(id, f"queue:{queue}", "publishes") for queue in one.outputs)
        if one.errors:
            yield Edge(id, f"queue:{one.errors}", "errors")
        if one.keeps is not None:
            yield Edge(id, f"table:{one.keeps.table}", "writes")
        if one.lake is not None:
            yield Edge(id, f"lake:{one.lake.name}", "writes")
        if one.from_table is not None:
            yield Edge(f"lake:{one.from_table}", id, "reads")
        if one.archives is not None:
            yield Edge(f"queue:{one.archives.category}", id, "reads")
            yield Edge(id, "lake:penstock.archive", "writes")


#: the categories of the first and last messages that the newest steps of each processor published
_PUBLISHED: LiteralString = """
select distinct p.processor, message_store.category(m.stream_name),
  coalesce(m.metadata ? 'failed_global_position', false)
from unnest(%(processors)s::text[]) as p(processor)
cross join lateral (
  select r.data from (
    select m.data, m.type, m.position from message_store.messages m
    where m.stream_name = %(pipeline)s || ':try-' || p.processor
    order by m.position desc limit %(look_at)s
  ) r
  where r.type = 'Attempt'
) a
cross join lateral (values (a.data ->> 'first_position'), (a.data ->> 'last_position'))
  as at(position)
join message_store.messages m on m.global_position = at.position::bigint
  and m.metadata ->> 'pipeline' = %(pipeline)s and m.metadata ->> 'processor' = p.processor
order by 1, 2"""
_TABLES: LiteralString = """
select p.processor, s.data, p.tables from penstock.processors p
left join lateral (
  select r.data from (
    select m.data, m.type, m.position from message_store.messages m
    where m.stream_name = p.pipeline || ':try-' || p.processor
    order by m.position desc limit 2
  ) r
  where r.type = 'Snapshot' order by r.position desc limit 1
) s on true
where p.pipeline = %(pipeline)s and p.processor = any (%(processors)s)
order by 1"""


async def _observed_edges(
    store: AsyncStore, pipeline: str, known: Mapping[str, Processor]
) -> list[Edge]:
    arguments = {"pipeline": pipeline, "processors": list(known), "look_at": LOOK_AT}
    published = await store.run(query("published", _PUBLISHED, arguments, list))
    tables = await store.run(query("tables", _TABLES, arguments, list))
    edges = [
        Edge(f"queue:{tailer.queue}", f"processor:{name}", "reads")
        for name, one in known.items()
        for tailer in one.tailers
    ]
    for name, snapshot, upserted in tables:
        looked_up = (snapshot or {}).get("tables", {})
        edges += (
            Edge(f"queue:{queue}", f"processor:{name}", "looks up")
            for queue in looked_up
            if queue not in {tailer.queue for tailer in known[name].tailers}
        )
        edges += (Edge(f"processor:{name}", f"table:{one}", "upserts") for one in upserted)
    edges += (
        Edge(f"processor:{name}", f"queue:{queue}", "errors" if failed else "publishes")
        for name, queue, failed in published
    )
    return edges


def _columns(ids: list[str], edges: list[Edge]) -> dict[str, int]:
    """Return the column of each node: to the right of all that lead to it, but for cycles."""
    columns = dict.fromkeys(ids, 0)
    for _ in range(len(ids)):
        moved = False
        for edge in edges:
            after = columns[edge.source] + 1
            if columns[edge.target] < after < len(ids):
                columns[edge.target], moved = after, True
        if not moved:
            return columns
    return columns
