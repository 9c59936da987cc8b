"""The overview: what lags, what failed, who holds readers back, and the doctor's findings."""

from __future__ import annotations

import msgspec

import penstock
from penstock import AsyncStore, Store
from penstock.console.data import overview
from tests.telemetry.busy import busy


async def test_the_worst_comes_first(store: Store, async_store: AsyncStore) -> None:
    busy(store)

    found = await overview.overview(async_store)

    assert found.last_position == found.watermark == store.status().head
    assert (found.behind, found.held_back_by) == (0, ())
    assert {one.kind for one in found.readers} == {"consumer", "session", "group", "outbox"}
    lags = [one.seconds for one in found.readers]
    assert lags == sorted(lags, reverse=True)
    assert {one.name: one.count.value for one in found.troubles} == {
        "consumer.parked": 1,
        "group.parked": 1,
        "outbox.failed": 1,
    }
    assert all(one.error for one in found.troubles)  # what is wrong, and why
    assert found.versions.penstock == penstock.__version__
    assert found.versions.schema == found.versions.client_schema
    assert msgspec.json.encode(found)


async def test_the_doctors_findings(async_store: AsyncStore) -> None:
    found = {one.check: one for one in await overview.findings(async_store)}

    assert found["sequence"].level == "OK"
    assert {"server", "message store", "triggers", "open writers"} <= set(found)
