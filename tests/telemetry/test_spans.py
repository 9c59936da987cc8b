"""Each operation is a span that tells what was done, and nothing of what messages hold."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import psycopg
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, Tracer, format_trace_id

import penstock
from penstock import JsonSerializer, Message, Store, WrongExpectedVersion
from penstock.telemetry import OpenTelemetry


def test_an_operation_is_a_client_span_named_by_operation_and_category(
    traced: Store, spans: InMemorySpanExporter
) -> None:
    traced.write_message("account-1", "Opened")

    (span,) = spans.get_finished_spans()
    assert (span.name, span.kind) == ("write_message account", SpanKind.CLIENT)
    assert span.attributes == {
        "db.system.name": "postgresql",
        "db.operation.name": "write_message",
        "db.collection.name": "account",
        "messaging.destination.name": "account-1",
        "penstock.type": "Opened",
    }


def test_a_batch_tells_how_many_messages_and_a_read_how_many_rows(
    traced: Store, spans: InMemorySpanExporter
) -> None:
    traced.write_messages("account-1", [Message("Opened"), Message("Closed")])
    traced.get_category_messages("account")

    written, read = [dict(one.attributes or {}) for one in spans.get_finished_spans()]
    assert written["messaging.batch.message_count"] == 2
    assert read["db.response.returned_rows"] == 2


def test_what_is_about_a_group_or_nothing_in_particular_has_a_name_too(
    traced: Store, spans: InMemorySpanExporter
) -> None:
    traced.groups.register("enrolment")
    traced.outbox.enqueue("mail")

    group, outbox = spans.get_finished_spans()
    assert (group.name, outbox.name) == ("register_consumer_group", "enqueue")
    assert (group.attributes or {})["messaging.consumer.group.name"] == "enrolment"


def test_an_error_is_recorded_and_passes(traced: Store, spans: InMemorySpanExporter) -> None:
    with pytest.raises(WrongExpectedVersion):
        traced.write_message("account-1", "Opened", expected_version=5)

    (span,) = spans.get_finished_spans()
    attributes = span.attributes or {}
    assert span.status.status_code is StatusCode.ERROR
    assert attributes["error.type"] == "WrongExpectedVersion"
    assert attributes["db.response.status_code"] == "P0001"
    assert [event.name for event in span.events] == ["exception"]


def test_an_error_that_quotes_what_was_sent_does_not_take_it_along(
    database_url: str, telemetry: OpenTelemetry, spans: InMemorySpanExporter
) -> None:
    class Broken(JsonSerializer):
        def encode(self, type: str, value: Mapping[str, Any]) -> str:
            return super().encode(type, value).replace(":", " secret")

    with (
        penstock.connect(database_url, serializer=Broken(), interceptors=[telemetry]) as store,
        pytest.raises(psycopg.Error, match="secret"),
    ):
        store.write_message("account-1", "Opened", {"owner": "Ada"})

    (span,) = spans.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR
    assert "secret" not in shown(span)


def test_nor_does_an_error_about_a_value_that_was_read(
    database_url: str, telemetry: OpenTelemetry, spans: InMemorySpanExporter
) -> None:
    class Chatty(JsonSerializer):
        def decode(self, type: str, text: str) -> Any:
            raise ValueError(f"cannot read {text}")

    options: dict[str, Any] = {"interceptors": [telemetry], "sql_condition": True}
    with penstock.connect(database_url, **options) as store:
        store.write_message("account-1", "Opened", {"owner": "secret"})
        with pytest.raises(psycopg.DataError, match="secret"):
            store.get_category_messages("account", condition="(data ->> 'owner')::int = 1")
    with (
        penstock.connect(database_url, serializer=Chatty(), **options) as store,
        pytest.raises(penstock.errors.DecodingError, match="secret"),
    ):
        store.get_category_messages("account")

    _, *failed = spans.get_finished_spans()
    assert [(span.attributes or {})["error.type"] for span in failed] == [
        "InvalidTextRepresentation",
        "DecodingError",
    ]
    assert not any("secret" in shown(span) for span in failed)


def test_data_and_metadata_are_nowhere_in_a_span(
    traced: Store, spans: InMemorySpanExporter
) -> None:
    traced.write_message("account-1", "Opened", {"a": "secret"}, {"b": "secret"})
    traced.outbox.enqueue("mail", "secret")
    traced.get_last_stream_message("account-1")

    assert not any("secret" in shown(span) for span in spans.get_finished_spans())


def test_operations_of_a_transaction_are_children_of_the_span_around_them(
    traced: Store, spans: InMemorySpanExporter, tracer: Tracer
) -> None:
    with tracer.start_as_current_span("deposit"), traced.transaction() as transaction:
        transaction.stream_version("account-1")
        transaction.write_message("account-1", "Deposited")

    *children, deposit = spans.get_finished_spans()
    assert [one.name for one in children] == ["stream_version account", "write_message account"]
    assert all(one.parent == deposit.context for one in children)


async def test_async_code_gets_the_same(
    database_url: str, telemetry: OpenTelemetry, spans: InMemorySpanExporter
) -> None:
    async with await penstock.connect_async(database_url, interceptors=[telemetry]) as store:
        await store.write_message("account-1", "Opened")

    (span,) = spans.get_finished_spans()
    assert span.name == "write_message account"


class TestPropagation:
    @pytest.fixture
    def telemetry(self, tracer: Tracer) -> OpenTelemetry:
        return OpenTelemetry(tracer, propagate=True)

    def test_a_message_carries_the_trace_in_which_it_was_written(
        self, traced: Store, tracer: Tracer
    ) -> None:
        with tracer.start_as_current_span("deposit") as span:
            traced.write_message("account-1", "Deposited", metadata={"user": "ada"})

        metadata = metadata_of(traced, "account-1")
        assert metadata.pop("user") == "ada"
        assert format_trace_id(span.get_span_context().trace_id) in metadata.pop("traceparent")
        assert metadata == {}

    def test_a_context_that_is_there_already_stays(self, traced: Store, tracer: Tracer) -> None:
        with tracer.start_as_current_span("deposit"):
            traced.write_message("account-1", "Deposited", metadata={"traceparent": "mine"})

        assert metadata_of(traced, "account-1") == {"traceparent": "mine"}

    def test_outside_of_a_trace_there_is_nothing_to_carry(self, traced: Store) -> None:
        traced.write_message("account-1", "Deposited")

        assert metadata_of(traced, "account-1") == {}


def test_metadata_stays_as_it_is_unless_propagation_is_asked_for(
    traced: Store, tracer: Tracer
) -> None:
    with tracer.start_as_current_span("deposit"):
        traced.write_message("account-1", "Deposited")

    assert metadata_of(traced, "account-1") == {}


def test_penstock_works_without_opentelemetry_and_says_what_telemetry_needs() -> None:
    script = """
import sys
sys.modules["opentelemetry"] = None
import penstock
try:
    import penstock.telemetry
except ModuleNotFoundError as error:
    print(error)
"""

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert "pip install 'penstock-log[telemetry]'" in done.stdout


def metadata_of(store: Store, stream_name: str) -> dict[str, Any]:
    message = store.get_last_stream_message(stream_name)
    assert message is not None
    return message.metadata or {}


def shown(span: ReadableSpan) -> str:
    """Everything that is exported of a span."""
    return str(span.to_json())
