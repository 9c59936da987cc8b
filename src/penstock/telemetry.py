"""Spans and metrics for OpenTelemetry: an interceptor, and gauges of how a store stands.

    telemetry = OpenTelemetry()
    store = penstock.connect(interceptors=[telemetry])
    telemetry.observe(store)

Each operation is one span and one measurement of its duration, named as OpenTelemetry's semantic
conventions for databases ask; a category is the collection, and a stream or category the messaging
destination. They tell of names, counts and errors, never of a message's data or metadata: so an
error is recorded by its name and first line, since the lines below may quote what was sent, and
by its name alone if it is about a value.

The gauges are the figures of `store.admin.health()`. Needs `pip install 'penstock-log[telemetry]'`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from penstock.admin import health
from penstock.admin.health import HealthFigure
from penstock.database import pool
from penstock.database.execute import execute
from penstock.database.interceptor import Call, Interceptor
from penstock.errors import (
    DecodingError,
    PenstockError,
    StoreClosed,
    ValidationError,
    first_line,
)
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

#: as the conventions want them for db.client.operation.duration, in seconds
_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10)
#: a transaction that holds readers back for longer, in seconds, is named: each pid is a new series
_LONG = 1.0
#: errors whose first line may quote data already: of PostgreSQL's types, and of a serializer
_QUOTING = (psycopg.DataError, DecodingError)
#: what of an operation's facts is told, and as what
_FACTS = {
    "stream_name": "messaging.destination.name",
    "category_name": "messaging.destination.name",
    "group_id": "messaging.consumer.group.name",
    "count": "messaging.batch.message_count",
    "type": "penstock.type",
    "consumer_id": "penstock.consumer_id",
}
#: for each figure of `health()` the unit, and what it tells
_GAUGES = {
    "watermark.age": ("s", "For how long readers are held back by a transaction that has written"),
    "watermark.behind": ("{position}", "How many positions are held back from readers"),
    "consumer.lag": ("s", "For how long a consumer's next message has been waiting"),
    "consumer.parked": ("{message}", "How many messages a consumer has set aside"),
    "session.lag": ("s", "For how long a session's next record has been waiting"),
    "group.lag": ("s", "For how long a group's oldest unhandled message has been waiting"),
    "group.parked": ("{partition}", "How many partitions a group has set aside"),
    "group.claim_age": ("s", "For how long a group's oldest claim has been held"),
    "outbox.lag": ("s", "For how long the outbox's first message has been due"),
    "outbox.failed": ("{message}", "How many messages of a topic have failed for good"),
    "processor.lag": ("s", "For how long a processor's next message has been waiting"),
    "processor.failed": ("{processor}", "Whether an error has stopped a processor: 1, or 0"),
}


class OpenTelemetry(Interceptor):
    """Makes a span and a measurement of each operation. One for all stores of a process.

    Tracer and meter are the global providers' unless given. With `propagate`, the trace context in
    which a message is written goes into its metadata, as `traceparent`.
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
        """Add the trace context to the metadata, if asked to and if the message has none yet."""
        if not self._propagate or "traceparent" in (message.metadata or {}):
            return message
        context: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(context)
        return message.with_metadata(**context) if context else message

    @contextmanager
    def around(self, call: Call) -> Iterator[None]:
        """Make a span of the operation, and measure how long it takes."""
        if call.name == "health":  # the gauges' own
            yield
            return
        low, all_known = _attributes(call)
        started = time.perf_counter()
        with self._span(call, {**low, **all_known}) as span:
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
        """Feed gauges with the figures of `store.admin.health()`, until the store is closed.

        Each collection of metrics asks the database once, in the thread that collects: a `Store`
        through its pool, an `AsyncStore` on a connection of its own, since that thread has no loop.
        """
        if not isinstance(store, Store | AsyncStore):
            raise ValidationError("store", store, "a Store or an AsyncStore")
        self._observed.append(_Figures(store))
        if len(self._observed) == 1:
            for name, (unit, description) in _GAUGES.items():
                self._meter.create_observable_gauge(
                    f"penstock.{name}", [self._callback(name)], unit, description
                )

    def _span(self, call: Call, attributes: Attributes) -> Any:
        collection = attributes.get("db.collection.name")
        return self._tracer.start_as_current_span(
            f"{call.name} {collection}" if collection else call.name,
            kind=trace.SpanKind.CLIENT,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        )

    def _callback(self, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observations(options: CallbackOptions) -> Iterable[Observation]:
            for figures in list(self._observed):
                for one in figures.take(name):
                    yield Observation(one.value, {**figures.place, **_labels(one)})

        return observations


class _Figures:
    """The figures of one store, read once for all gauges: anew when a gauge comes back."""

    def __init__(self, store: Store | AsyncStore) -> None:
        self._store = store
        self._operation = health.health(store.context)
        self._lock = threading.Lock()
        self._figures: list[HealthFigure] = []
        self._waiting: set[str] = set()  # gauges that have not had these figures
        self.place = _place(store)

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
        except StoreClosed:
            return []
        except (PenstockError, psycopg.Error) as error:
            logger.warning("no figures of how the store stands: %s", first_line(error))
            return []


def _attributes(call: Call) -> tuple[Attributes, Attributes]:
    """Return what there is to tell of an operation: for metrics, few values; for spans, more."""
    low: Attributes = {"db.system.name": "postgresql", "db.operation.name": call.name}
    destination = call.facts.get("stream_name") or call.facts.get("category_name")
    if destination:
        low["db.collection.name"] = names.category(destination)
    return low, {_FACTS[name]: one for name, one in call.facts.items() if name in _FACTS}


def _record(span: trace.Span, error: BaseException) -> Attributes:
    """Record an error, and return what metrics should know of it."""
    found: Attributes = {"error.type": type(error).__qualname__}
    for one in (error, error.__cause__):
        if isinstance(one, psycopg.Error) and one.sqlstate:
            found["db.response.status_code"] = one.sqlstate
    name = type(error).__qualname__
    words = name if isinstance(error, _QUOTING) else first_line(error)
    span.add_event("exception", {"exception.type": name, "exception.message": words})
    span.set_attributes(found)
    span.set_status(trace.StatusCode.ERROR, words)
    return found


def _labels(figure: HealthFigure) -> Mapping[str, Any]:
    """Return whom a figure is about."""
    who = figure.subject
    if figure.name == "watermark.age" and figure.value >= _LONG:
        who |= {
            key: figure.detail[key] for key in ("pid", "application_name") if key in figure.detail
        }
    return {f"penstock.{key}": value for key, value in who.items()}


def _place(store: Store | AsyncStore) -> Attributes:
    """Return which database this is, to tell the figures of several apart."""
    parts = conninfo_to_dict(store.settings.conninfo())
    known = {"db.namespace": parts.get("dbname"), "server.address": parts.get("host")}
    return {"db.system.name": "postgresql"} | {key: one for key, one in known.items() if one}
