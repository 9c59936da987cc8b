"""Spans and metrics for OpenTelemetry: an interceptor, and gauges of a store's health.

    telemetry = OpenTelemetry()
    store = penstock.connect(interceptors=[telemetry])
    telemetry.observe(store)

Each operation is one span and one measurement of its duration, named by OpenTelemetry's semantic
conventions for databases. A category is the collection; a stream or category is the messaging
destination. Spans contain names, counts and errors, never the data or metadata of a message. So an
error is recorded with its name and first line, since the other lines may quote what was sent, and
with its name only if its first line may quote a value.

The gauges are the figures of `store.admin.health()`. Needs `pip install 'penstock-log[telemetry]'`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from penstock.admin import readers
from penstock.admin.readers import HealthFigure
from penstock.database import pool
from penstock.database.execute import execute
from penstock.database.interceptor import Call, Interceptor
from penstock.errors import DecodingError, PenstockError, StoreClosed, ValidationError, first_line
from penstock.extras import from_extra
from penstock.message import Message, names
from penstock.store import Store
from penstock.store_async import AsyncStore

with from_extra("telemetry"):
    from opentelemetry import metrics, trace
    from opentelemetry.metrics import CallbackOptions, Observation
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

logger = logging.getLogger("penstock")

Attributes = dict[str, str | int]

#: the conventions' buckets of db.client.operation.duration, in seconds
_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10)
#: a transaction is named if it holds readers back for these seconds: each pid is a new series
_LONG = 1.0
#: errors whose first line may quote data: of PostgreSQL's types, and of a serializer
_QUOTING = (psycopg.DataError, DecodingError)
#: the attributes of an operation's facts
_FACTS = {
    "stream_name": "messaging.destination.name",
    "category_name": "messaging.destination.name",
    "group_id": "messaging.consumer.group.name",
    "count": "messaging.batch.message_count",
    "type": "penstock.type",
    "consumer_id": "penstock.consumer_id",
}
#: the unit and description of each figure of `health()`
_GAUGES = {
    "watermark.age": ("s", "Age of the transaction that holds readers back"),
    "watermark.behind": ("{position}", "Positions that readers do not get yet"),
    "consumer.lag": ("s", "Time that a consumer's next message has waited"),
    "consumer.parked": ("{message}", "Parked messages of a consumer"),
    "session.lag": ("s", "Time that a session's next record has waited"),
    "group.lag": ("s", "Time that a group's oldest unhandled message has waited"),
    "group.parked": ("{partition}", "Parked partitions of a group"),
    "group.claim_age": ("s", "Age of a group's oldest active claim"),
    "outbox.lag": ("s", "Time since the outbox's first message became due"),
    "outbox.failed": ("{message}", "Failed messages of a topic"),
    "processor.lag": ("s", "Time that a processor's next message has waited"),
    "processor.failed": ("{processor}", "1 if an error has stopped a processor, else 0"),
}


class OpenTelemetry(Interceptor):
    """Records a span and the duration of each operation. Create one for all stores of a process.

    By default, it uses the global tracer and meter providers. With `propagate`, the current trace
    context is written to the metadata of each message, as `traceparent`.
    """

    def __init__(
        self,
        tracer: trace.Tracer | None = None,
        meter: metrics.Meter | None = None,
        *,
        propagate: bool = False,
    ) -> None:
        self._tracer = tracer or trace.get_tracer("penstock", version("penstock-log"))
        self._meter = meter or metrics.get_meter("penstock", version("penstock-log"))
        self._propagate = propagate
        self._observed: list[_Figures] = []
        self._duration = self._meter.create_histogram(
            "db.client.operation.duration",
            unit="s",
            description="Duration of database client operations",
            explicit_bucket_boundaries_advisory=_BUCKETS,
        )

    def on_write(self, stream_name: str, message: Message) -> Message:
        """Add the trace context to the metadata, with `propagate` and unless it has one."""
        if not self._propagate or "traceparent" in (message.metadata or {}):
            return message
        context: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(context)
        return message.with_metadata(**context) if context else message

    @contextmanager
    def around(self, call: Call) -> Iterator[None]:
        """Record a span and the duration of the operation."""
        if call.name == "health":  # read by the gauges
            yield
            return
        title = call.name
        # low: of few values, so that metrics have them too
        low: Attributes = {"db.system.name": "postgresql", "db.operation.name": call.name}
        if destination := call.facts.get("stream_name") or call.facts.get("category_name"):
            low["db.collection.name"] = names.category(destination)
            title = f"{call.name} {names.category(destination)}"
        facts = {_FACTS[name]: one for name, one in call.facts.items() if name in _FACTS}
        started = time.perf_counter()
        with self._tracer.start_as_current_span(
            title,
            kind=trace.SpanKind.CLIENT,
            attributes={**low, **facts},
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except BaseException as error:
                low |= _record(span, error)
                raise
            else:
                if isinstance(call.result, list):
                    span.set_attribute("db.response.returned_rows", len(call.result))
            finally:
                self._duration.record(time.perf_counter() - started, low)

    def observe(self, store: Store | AsyncStore) -> None:
        """Add gauges for the figures of `store.admin.health()`, until the store is closed.

        Each collection of metrics queries the database once, in the collecting thread: a `Store`
        through its pool, an `AsyncStore` on a new connection, since that thread has no event loop.
        """
        if not isinstance(store, Store | AsyncStore):
            raise ValidationError("store", store, "a Store or an AsyncStore")
        self._observed.append(_Figures(store))
        if len(self._observed) == 1:
            for name, (unit, description) in _GAUGES.items():
                calls = [partial(self._observations, name)]
                self._meter.create_observable_gauge(f"penstock.{name}", calls, unit, description)

    def _observations(self, name: str, options: CallbackOptions) -> Iterable[Observation]:
        for figures in list(self._observed):
            for one in figures.take(name):
                yield Observation(one.value, {**figures.database, **_labels(one)})


class _Figures:
    """The figures of one store. All gauges share one read; a gauge's next call reads again."""

    def __init__(self, store: Store | AsyncStore) -> None:
        self._store = store
        self._operation = readers.health(store.context)
        self._lock = threading.Lock()
        self._figures: list[HealthFigure] = []
        self._waiting: set[str] = set()  # gauges that have not used these figures
        parts = conninfo_to_dict(store.settings.conninfo())
        known = {"db.namespace": parts.get("dbname"), "server.address": parts.get("host")}
        #: distinguishes the figures of several stores
        self.database = {"db.system.name": "postgresql", **{k: v for k, v in known.items() if v}}

    def take(self, name: str) -> list[HealthFigure]:
        """Return the figures of this name."""
        with self._lock:
            if name not in self._waiting:
                self._figures = self._read()
                self._waiting = set(_GAUGES)
            self._waiting.remove(name)
            return [one for one in self._figures if one.name == name]

    def _read(self) -> list[HealthFigure]:
        if self._store.is_closed:
            return []
        try:
            if isinstance(self._store, Store):
                return self._store.run(self._operation)
            with pool.connect(self._store.settings) as connection:
                return execute(connection, self._operation, where=self._store.settings.where())
        except (PenstockError, psycopg.Error) as error:
            if not isinstance(error, StoreClosed):
                logger.warning("health figures are not available: %s", first_line(error))
            return []


def _record(span: trace.Span, error: BaseException) -> Attributes:
    """Record an error, and return its attributes for metrics."""
    name = type(error).__qualname__
    found: Attributes = {"error.type": name}
    for one in (error, error.__cause__):
        if isinstance(one, psycopg.Error) and one.sqlstate:
            found["db.response.status_code"] = one.sqlstate
    text = name if isinstance(error, _QUOTING) else first_line(error)
    span.add_event("exception", {"exception.type": name, "exception.message": text})
    span.set_attributes(found)
    span.set_status(trace.StatusCode.ERROR, text)
    return found


def _labels(figure: HealthFigure) -> dict[str, Any]:
    keys = list(figure.subject)
    if figure.name == "watermark.age" and figure.value >= _LONG:
        keys += ["pid", "application_name"]
    return {f"penstock.{key}": figure.detail[key] for key in keys if key in figure.detail}
