"""Pipelines: processors, their steps and samples, and the graph."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from penstock import AsyncStore
from penstock.console.data import graphs, lake, pipelines
from penstock.console.data.pipelines import Processor
from penstock.errors import ProcessorNotFound, TableNotFound, ValidationError
from tests.console.data.steps import begin_step, commit_step


async def _shop(store: AsyncStore) -> None:
    for number in range(3):
        await store.write_message("order-1", "Placed", {"number": number})
    first = await begin_step(store, "bill", {"order": (0, 2)}, "d1")
    await commit_step(
        store,
        first,
        ("invoice-1", "Billed", {"sum": 1}, {}),
        ("errors-1", "Placed", {}, {"failed_global_position": 2, "error": "no price"}),
    )
    await begin_step(store, "bill", {"order": (2, 3)}, "d2")


async def test_processors_with_lag_and_the_open_snapshot(async_store: AsyncStore) -> None:
    await _shop(async_store)

    [pipeline] = await pipelines.pipelines(async_store)
    found = await pipelines.processor(async_store, "shop", "bill")

    assert (pipeline.pipeline, pipeline.processors, pipeline.lag.value) == ("shop", 1, 1)
    assert pipeline.running is None
    one = found.processor
    assert (one.steps, one.messages_out, one.lag.value) == (1, 2, 1)
    assert [(tailer.queue, tailer.position) for tailer in one.tailers] == [("order", 2)]
    assert [step.delivery for step in found.steps.items] == ["d2", "d1"]
    assert found.open_snapshot is not None
    assert found.open_snapshot.ranges == {"order": (2, 3)}
    assert found.steps.items[1].published == 2
    assert [row.data.value for row in found.sample_in] == [{"number": 1}, {"number": 0}]
    assert [row.type for row in found.sample_out] == ["Billed", "Placed"]


async def test_steps_come_in_pages(async_store: AsyncStore) -> None:
    await async_store.write_message("order-1", "Placed")
    for number in range(5):
        snapshot = await begin_step(async_store, "bill", {}, f"d{number}")
        await commit_step(async_store, snapshot)

    found: list[str] = []
    after = None
    while True:
        page = (await pipelines.processor(async_store, "shop", "bill", after, limit=2)).steps
        found += [step.delivery for step in page.items]
        after = page.next
        if after is None:
            break

    assert found == ["d4", "d3", "d2", "d1", "d0"]


async def test_a_graph_from_what_the_steps_did(async_store: AsyncStore) -> None:
    await _shop(async_store)

    found = await graphs.graph(async_store, "shop")

    assert not found.declared
    assert {(one.source, one.what, one.target) for one in found.edges} == {
        ("queue:order", "reads", "processor:bill"),
        ("processor:bill", "publishes", "queue:invoice"),
        ("processor:bill", "errors", "queue:errors"),
    }
    assert [(one.column, one.name) for one in found.nodes] == [
        *((0, "order"), (1, "bill"), (2, "errors"), (2, "invoice"))
    ]
    assert isinstance(found.nodes[1].processor, Processor)


async def test_a_graph_from_a_declaration_that_has_not_run(async_store: AsyncStore) -> None:
    bill = SimpleNamespace(
        name="bill", reads=("order",), looks_up=("price",), outputs=("invoice",), errors=None,
        keeps=None, lake=SimpleNamespace(name="shop.bills"), from_table=None, archives=None,
    )  # fmt: skip
    shop = SimpleNamespace(name="shop", processors={"bill": bill})

    found = await graphs.graph(async_store, "shop", [shop])

    assert found.declared
    assert {(one.kind, one.name) for one in found.nodes} == {
        *(("queue", "order"), ("queue", "price"), ("processor", "bill")),
        *(("queue", "invoice"), ("lake", "shop.bills")),
    }


async def test_what_has_not_run_is_named(async_store: AsyncStore) -> None:
    assert await pipelines.pipelines(async_store) == ()
    assert await lake.lake_tables(async_store) == ()
    with pytest.raises(ProcessorNotFound, match="'shop'"):
        await graphs.graph(async_store, "shop")
    with pytest.raises(ProcessorNotFound):
        await pipelines.processor(async_store, "shop", "x")
    with pytest.raises(ValidationError):
        await pipelines.processor(async_store, "", "x")
    with pytest.raises(TableNotFound):
        await lake.lake_table(async_store, "x.y")
