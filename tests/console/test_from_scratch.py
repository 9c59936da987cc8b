"""A pipeline that is run from scratch on the console: its run does it, and the page says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2
import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock import AsyncStore, Store
from penstock.pipeline import Pipeline
from tests.console.conftest import act, asking, confirm
from tests.console.data.steps import begin_step
from tests.pipeline.steps.following import Following
from tests.pipeline.steps.running import Harness, numbered, renumbered
from tests.spark.faults.waiting import wait_until

SHOP = {"pipeline": "shop"}
RUNS = """
select count(*) > 0 from pg_stat_activity
where application_name ~ '^penstock run shop' and datname = current_database()"""


@pytest.fixture
def harness(store: Store, spark: SparkSession) -> Iterator[Harness]:
    harness = Harness(store, spark)
    yield harness
    harness.close()


@pytest.fixture
async def client(async_store: AsyncStore) -> AsyncIterator[httpx2.AsyncClient]:
    async with asking(async_store, actions=True, user=lambda request: "ada") as client:
        yield client


def _pipeline() -> Pipeline:
    pipe = Pipeline("shop")
    pipe.schema("number")

    @pipe.stream(inputs="number", output="odd")
    def add(number: DataFrame) -> DataFrame:
        return renumbered(numbered(number), "n + 1")

    return pipe


async def _restart(client: httpx2.AsyncClient) -> dict[str, Any]:
    facts = (await client.get("/api/pipelines/pipeline", params=SHOP)).json()
    restart: dict[str, Any] = facts["restart"]
    return restart


async def test_the_run_that_follows_begins_again_at_once(
    client: httpx2.AsyncClient, harness: Harness
) -> None:
    harness.write("number", 1, 2)
    await asyncio.to_thread(harness.run, _pipeline())
    following = Following(_pipeline(), harness)
    try:
        await asyncio.to_thread(_wait_for_run, harness)
        shown = await client.get("/actions/restart-pipeline", params=SHOP)
        done = await confirm(client, shown)
        await asyncio.to_thread(_wait_for_odds, harness, 4)
    finally:
        await asyncio.to_thread(following.end)

    assert "Publish everything anew: add." in shown.text
    assert "It runs (penstock run shop on " in shown.text
    assert "It is requested: a run of shop begins from scratch." in done.text
    assert harness.numbers("odd") == [2, 3, 2, 3]
    restart = await _restart(client)
    assert (restart["state"], restart["requested_by"]) == ("done", "ada")


def _wait_for_run(harness: Harness) -> None:
    wait_until(harness.store.settings.conninfo(), RUNS)


def _wait_for_odds(harness: Harness, count: int) -> None:
    sql = "select count(*) >= %s from message_store.messages where stream_name ~ '^odd(-|$)'"
    wait_until(harness.store.settings.conninfo(), sql, (count,))


async def test_a_run_that_refuses_it_says_why_on_the_page(
    client: httpx2.AsyncClient, harness: Harness
) -> None:
    pipe = _pipeline()
    pipe.stream(inputs="odd", output="even", name="double")(
        lambda odd: renumbered(numbered(odd), "n * 2")
    )
    harness.write("number", 1)
    await asyncio.to_thread(harness.run, pipe)
    harness.write("odd", 7)  # it would be skipped
    await act(client, "restart-pipeline", **SHOP)

    await asyncio.to_thread(harness.run, pipe)
    page = await client.get("/pipelines/pipeline", params=SHOP)

    assert (await _restart(client))["state"] == "refused"
    assert "double cannot begin again: odd has messages of this pipeline" in page.text
    assert harness.numbers("even") == [4, 14]


async def test_the_second_of_two_people_is_refused(
    client: httpx2.AsyncClient, async_store: AsyncStore
) -> None:
    await begin_step(async_store, "bill", {}, "d1")
    one = await client.get("/actions/restart-pipeline", params=SHOP)
    other = await client.get("/actions/restart-pipeline", params=SHOP)
    first, second = await confirm(client, one), await confirm(client, other)
    third = await client.get("/actions/restart-pipeline", params=SHOP)

    assert "It does not run: its next run begins with that." in one.text
    assert (first.status_code, second.status_code) == (200, 409)
    assert "ada has requested it already" in third.text
    assert 'name="confirmed"' not in third.text
    messages = await async_store.get_stream_messages("shop:restart-requests")
    assert [one.type for one in messages] == ["RestartRequested"]


async def test_one_who_confirms_late_does_not_request_it_again(
    client: httpx2.AsyncClient, async_store: AsyncStore
) -> None:
    await begin_step(async_store, "bill", {}, "d1")
    late = await client.get("/actions/restart-pipeline", params=SHOP)
    await act(client, "restart-pipeline", **SHOP)
    await act(client, "withdraw-restart", **SHOP)

    refused = await confirm(client, late)
    again = await client.get("/actions/withdraw-restart", params=SHOP)

    assert refused.status_code == 409
    assert "No start of shop from scratch is requested" in again.text
    assert (await _restart(client))["state"] == "withdrawn"


async def test_a_pipeline_that_has_not_run_is_named(client: httpx2.AsyncClient) -> None:
    shown = await client.get("/actions/restart-pipeline", params={"pipeline": "mill"})

    assert shown.status_code == 404
    assert "mill" in shown.text
