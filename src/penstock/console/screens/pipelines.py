"""Pipelines: graphs, processors, and the tables of the lake."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.console.data import graphs, lake, pipeline_actions
from penstock.console.data import pipelines as data
from penstock.console.screen import Ask, Screen


async def pipelines(ask: Ask) -> Mapping[str, Any]:
    """Return the pipelines that have run."""
    return {"pipelines": await data.pipelines(ask.store)}


async def pipeline(ask: Ask) -> Mapping[str, Any]:
    """Return a pipeline's graph, with the state of its processors."""
    name = ask.need("pipeline")
    graph = await graphs.graph(ask.store, name, ask.pipelines)
    return {
        "graph": graph,
        "rates": {
            one.name: ask.live.rates.of((name, one.name), one.processor.messages_in)
            for one in graph.nodes
            if one.processor is not None
        },
        "restart": await pipeline_actions.restart_request(ask.store, name),
    }


async def processor(ask: Ask) -> Mapping[str, Any]:
    """Return a processor with its steps, its open snapshot and samples."""
    pipeline, name = ask.need("pipeline"), ask.need("processor")
    return {"detail": await data.processor(ask.store, pipeline, name, ask.text("after"))}


async def tables(ask: Ask) -> Mapping[str, Any]:
    """Return the tables of the lake."""
    return {"tables": await lake.lake_tables(ask.store)}


async def table(ask: Ask) -> Mapping[str, Any]:
    """Return a table of the lake with its snapshots."""
    found, snapshots = await lake.lake_table(ask.store, ask.need("table"))
    return {"table": found, "snapshots": snapshots}


SCREENS = (
    Screen(
        *("/pipelines", "pipelines", "Pipelines", "pipelines.html", pipelines),
        "The pipelines that have run on this database.",
    ),
    Screen(
        *("/pipelines/pipeline", "pipelines", "Pipeline", "pipeline.html", pipeline),
        "A pipeline's graph, with throughput, lag, duration and last error of its processors, "
        "and the last request to start it from scratch.",
        {"pipeline": "its name"},
    ),
    Screen(
        *("/pipelines/processor", "pipelines", "Processor", "processor.html", processor),
        "A processor: its steps, its open snapshot, sample messages in and out.",
        {
            "pipeline": "its pipeline",
            "processor": "its name",
            "after": "the `next` of the page before",
        },
    ),
    Screen(
        *("/tables", "tables", "Tables", "tables.html", tables),
        "The tables of the lake.",
        live=False,
    ),
    Screen(
        *("/tables/table", "tables", "Table", "table.html", table),
        "A table of the lake with its newest snapshots.",
        {"table": "its name"},
        live=False,
    ),
)
