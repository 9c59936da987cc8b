"""Durations of operations, and gauges of how a store stands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint

import penstock
from penstock import Call, Interceptor, Store, WrongExpectedVersion
from penstock.errors import UnsupportedEdition
from penstock.telemetry import OpenTelemetry
from tests.conftest import Server
from tests.telemetry.busy import an_hour_passes, busy


def collected(reader: InMemoryMetricReader) -> dict[str, list[Any]]:
    """What one collection finds: the points of each metric that has any."""
    data = reader.get_metrics_data()
    scopes = [scope for one in data.resource_metrics for scope in one.scope_metrics] if data else []
    return {
        metric.name: list(metric.data.data_points) for scope in scopes for metric in scope.metrics
    }


def named(point: NumberDataPoint) -> dict[str, Any]:
    """What is Penstock's own of a point's attributes."""
    return {
        name.removeprefix("penstock."): value
        for name, value in (point.attributes or {}).items()
        if name.startswith("penstock.")
    }


class Count(Interceptor):
    """Counts operations by name."""

    def __init__(self) -> None:
        self.names: list[str] = []

    @contextmanager
    def around(self, call: Call) -> Iterator[None]:
        self.names.append(call.name)
        yield


def test_durations_are_measured_by_operation_category_and_error(
    traced: Store, reader: InMemoryMetricReader
) -> None:
    for stream_name in ("account-1", "account-2"):
        traced.write_message(stream_name, "Opened")
    with pytest.raises(WrongExpectedVersion):
        traced.write_message("account-1", "Opened", expected_version=5)

    well, badly = collected(reader)["db.client.operation.duration"]

    assert (well.count, badly.count) == (2, 1)
    assert well.attributes == {
        "db.system.name": "postgresql",
        "db.operation.name": "write_message",
        "db.collection.name": "account",
    }
    assert badly.attributes["error.type"] == "WrongExpectedVersion"


def test_every_figure_of_a_busy_store_is_a_gauge(
    traced: Store, telemetry: OpenTelemetry, reader: InMemoryMetricReader
) -> None:
    busy(traced)
    an_hour_passes(traced)
    telemetry.observe(traced)

    gauges = collected(reader)

    gauges.pop("db.client.operation.duration")
    figures = traced.admin.health()
    assert set(gauges) == {f"penstock.{one.name}" for one in figures}
    for name, points in gauges.items():
        wanted = [one for one in figures if f"penstock.{one.name}" == name]
        assert [named(point) for point in points] == [one.subject for one in wanted]
        assert [hours(point.value) for point in points] == [hours(one.value) for one in wanted]


def test_one_collection_asks_the_store_once_and_makes_no_span(
    database_url: str, telemetry: OpenTelemetry, reader: InMemoryMetricReader
) -> None:
    count = Count()
    with penstock.connect(database_url, interceptors=[telemetry, count]) as store:
        telemetry.observe(store)

        found = [collected(reader) for _ in range(2)]

    assert count.names == ["health"] * 2
    assert "db.client.operation.duration" not in found[1]


def test_the_next_collection_sees_what_has_changed(
    traced: Store, telemetry: OpenTelemetry, reader: InMemoryMetricReader
) -> None:
    telemetry.observe(traced)
    before = collected(reader)

    fail_one(traced)

    (failed,) = collected(reader)["penstock.outbox.failed"]
    assert "penstock.outbox.failed" not in before
    assert (failed.value, named(failed)) == (1, {"topic": "mail"})


def test_who_holds_readers_back_for_long_is_named(
    traced: Store, telemetry: OpenTelemetry, reader: InMemoryMetricReader
) -> None:
    telemetry.observe(traced)
    with traced.transaction() as writer:
        writer.write_message("account-1", "Opened")
        writer.connection.execute("select pg_sleep_until(now() + interval '1.1 seconds')")

        (long,) = collected(reader)["penstock.watermark.age"]

        pid = writer.connection.info.backend_pid
        assert named(long) == {"pid": pid, "application_name": "penstock"}


def test_the_figures_of_several_databases_are_kept_apart(
    new_database: Callable[[str], str], telemetry: OpenTelemetry, reader: InMemoryMetricReader
) -> None:
    with (
        penstock.connect(new_database("penstock")) as first,
        penstock.connect(new_database("beside")) as second,
    ):
        for store in (first, second):
            telemetry.observe(store)

        points = collected(reader)["penstock.outbox.lag"]

        databases = [point.attributes["db.namespace"] for point in points]
        assert len(set(databases)) == 2


async def test_an_async_store_is_observed_in_the_thread_that_collects(
    database_url: str, telemetry: OpenTelemetry, reader: InMemoryMetricReader
) -> None:
    async with await penstock.connect_async(database_url) as store:
        telemetry.observe(store)
        await store.outbox.enqueue("mail")
        (claimed,) = await store.outbox.claim("here")
        await store.outbox.fail(claimed, "no such address")

        on_the_loop = collected(reader)["penstock.outbox.failed"]
        in_a_thread = (await asyncio.to_thread(collected, reader))["penstock.outbox.failed"]

    assert [named(one) for one in (*on_the_loop, *in_a_thread)] == [{"topic": "mail"}] * 2
    assert collected(reader) == {}  # it is closed


def test_what_is_no_store_is_refused_at_once(telemetry: OpenTelemetry) -> None:
    with pytest.raises(penstock.errors.ValidationError, match="a Store or an AsyncStore"):
        telemetry.observe("store")  # type: ignore[arg-type]


def test_a_store_that_is_closed_has_no_figures_and_no_complaints(
    store: Store,
    telemetry: OpenTelemetry,
    reader: InMemoryMetricReader,
    caplog: pytest.LogCaptureFixture,
) -> None:
    telemetry.observe(store)
    store.close()

    found = collected(reader)

    assert found == {}
    assert caplog.messages == []


def test_a_store_that_cannot_be_asked_is_complained_of_once_a_collection(
    server: Server,
    telemetry: OpenTelemetry,
    reader: InMemoryMetricReader,
    caplog: pytest.LogCaptureFixture,
) -> None:
    name = server.create_database(server.template("penstock"))
    with penstock.connect(server.url(name), interceptors=[telemetry]) as store:
        telemetry.observe(store)
        server.drop_database(name)

        found = collected(reader)

    assert found == {}
    warnings = [one for one in caplog.messages if one.startswith("health figures are not")]
    assert len(warnings) == 1


def test_a_genuine_message_db_has_no_figures(
    new_database: Callable[[str], str], telemetry: OpenTelemetry
) -> None:
    with (
        penstock.connect(new_database("genuine")) as store,
        pytest.raises(UnsupportedEdition, match="penstock init"),
    ):
        telemetry.observe(store)


def hours(value: float) -> float:
    """A count as it is, an age without the moment that has passed since it was read."""
    return round(value / 3600, 2) if value >= 3600 else value


def fail_one(store: Store) -> None:
    store.outbox.enqueue("mail")
    store.outbox.fail(store.outbox.claim("me"), "no such address")
