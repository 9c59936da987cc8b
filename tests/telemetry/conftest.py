"""A store whose spans and metrics are kept in memory, where tests look at them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Tracer

import penstock
from penstock import Store
from penstock.telemetry import OpenTelemetry


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracer(spans: InMemorySpanExporter) -> Tracer:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    return provider.get_tracer("tests")


@pytest.fixture
def reader() -> InMemoryMetricReader:
    return InMemoryMetricReader()


@pytest.fixture
def telemetry(tracer: Tracer, reader: InMemoryMetricReader) -> OpenTelemetry:
    return OpenTelemetry(tracer, MeterProvider([reader]).get_meter("tests"))


@pytest.fixture
def traced(database_url: str, telemetry: OpenTelemetry) -> Iterator[Store]:
    """A store on a fresh database, with telemetry."""
    with penstock.connect(database_url, interceptors=[telemetry]) as store:
        yield store
