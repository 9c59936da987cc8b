"""The serializer and the interceptors of a store: applied where they can be, else refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock
from penstock import Interceptor, JsonSerializer, Message, RecordedMessage
from penstock.database.interceptor import Call
from penstock.errors import UnsupportedBySpark
from penstock.pipeline import Pipeline, Runner
from tests.pipeline.steps.accounts import counting
from tests.pipeline.steps.chains import chain
from tests.pipeline.steps.running import Harness


class Shouting:
    """A serializer that writes keys in capitals, and reads them back."""

    def encode(self, type: str, value: Mapping[str, Any]) -> str:
        return JsonSerializer().encode(type, {key.upper(): one for key, one in value.items()})

    def decode(self, type: str, text: str) -> dict[str, Any]:
        found = JsonSerializer().decode(type, text)
        return {key.lower(): one for key, one in found.items()}


class OnRead(Interceptor):
    def on_read(self, message: RecordedMessage) -> RecordedMessage:
        return replace(message, data={**message.data, "read": True})


class OnWrite(Interceptor):
    def on_write(self, stream_name: str, message: Message) -> Message:
        return message


class Around(Interceptor):
    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    @contextmanager
    def around(self, call: Call) -> Iterator[None]:
        self.calls.append((call.name, call.facts.get("processor")))
        yield


def source() -> Pipeline:
    pipe = Pipeline("shop")

    @pipe.source(output="number")
    def bring(spark: SparkSession) -> DataFrame:
        return spark.range(1)

    return pipe


def sink() -> Pipeline:
    pipe = Pipeline("shop")
    pipe.schema("number")
    pipe.sink(inputs="number", name="send")(lambda number: None)
    return pipe


def typed_projection() -> Pipeline:
    pipe = Pipeline("shop")
    pipe.schema("account", "n int")
    pipe.project("account", into="counts", columns="n int", name="count")(lambda state, one: state)
    return pipe


@pytest.mark.parametrize(
    ("pipe", "options", "hook"),
    [
        (chain(1), {"serializer": Shouting()}, "serializer Shouting"),
        (source(), {"serializer": Shouting()}, "serializer Shouting"),
        (typed_projection(), {"serializer": Shouting()}, "serializer Shouting"),
        (chain(1), {"interceptors": [OnRead()]}, "interceptor OnRead.on_read"),
        (sink(), {"interceptors": [OnRead()]}, "interceptor OnRead.on_read"),
        (chain(1), {"interceptors": [OnWrite()]}, "interceptor OnWrite.on_write"),
        (source(), {"interceptors": [OnWrite()]}, "interceptor OnWrite.on_write"),
    ],
)
def test_what_cannot_be_applied_is_refused_before_anything_runs(
    database_url: str, spark: SparkSession, pipe: Pipeline, options: Any, hook: str
) -> None:
    with (
        penstock.connect(database_url, **options) as store,
        pytest.raises(UnsupportedBySpark) as caught,
    ):
        Runner(pipe, store, spark)

    (one,) = pipe.processors.values()
    assert caught.value.what == f"{hook} in {one.name} ({one.location})"
    assert "Use a store without it" in str(caught.value)


@pytest.mark.parametrize("hook", [OnWrite(), Around()])
def test_what_a_processor_does_not_need_is_not_in_its_way(
    database_url: str, spark: SparkSession, hook: Interceptor
) -> None:
    with penstock.connect(database_url, interceptors=[hook]) as store:
        Runner(sink(), store, spark)


@pytest.mark.parametrize("driver_rows", [20_000, 0])
def test_a_projection_reads_messages_as_the_store_does(
    database_url: str, spark: SparkSession, driver_rows: int
) -> None:
    seen: list[dict[str, Any]] = []
    pipe = Pipeline("shop")
    pipe.schema("account")

    @pipe.project("account", into="sums", columns="n int")
    def add(state: dict[str, int] | None, message: RecordedMessage) -> dict[str, int]:
        seen.append(message.data)
        return {"n": (state["n"] if state else 0) + message.data["amount"]}

    with penstock.connect(database_url, serializer=Shouting(), interceptors=[OnRead()]) as store:
        for amount in (3, 4):
            store.write_message("account-1", "Paid", {"amount": amount})
        harness = Harness(store, spark, driver_rows=driver_rows)
        assert harness.run(pipe).succeeded
        assert harness.rows("select n from sums") == [(7,)]

    assert seen == [{"amount": 3, "read": True}, {"amount": 4, "read": True}]


def test_around_sees_the_operations_of_a_step(database_url: str, spark: SparkSession) -> None:
    around = Around()
    with penstock.connect(database_url, interceptors=[around]) as store:
        store.write_message("account-1", "Opened")
        pipe = counting()
        pipe.run(store, spark)

    own = [name for name, processor in around.calls if processor == "count"]
    assert own[:5] == [
        "open_processor",
        "place_tailers",
        "folders",
        "write_snapshot",
        "commit_step",
    ]
    assert {"try_lock", "messages_to_read", "unlock"} <= {name for name, _ in around.calls}
