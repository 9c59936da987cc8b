"""The overview: how far the log is, who holds readers back, what lags, what failed, the doctor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString

import penstock
from penstock.admin.checks import server_checks
from penstock.admin.readers import HealthFigure, health
from penstock.console.data.pages import Count, bounded, query
from penstock.database import pool
from penstock.database.edition import SCHEMA_VERSION
from penstock.log import overview as operations
from penstock.log.overview import OpenWriter, Status, shortened
from penstock.loops.concurrency_async import run_in_thread
from penstock.settings import Settings
from penstock.store_async import AsyncStore


@dataclass(frozen=True, slots=True)
class HoldingBack:
    """An open transaction that has written: no reader of many streams passes `bound`."""

    #: None: a prepared transaction, which `application` names
    pid: int | None
    role: str | None
    application: str | None
    state: str | None
    seconds: float | None
    bound: int
    statement: str | None


@dataclass(frozen=True, slots=True)
class ReaderLag:
    """How long the next message of a reader has waited."""

    #: consumer, session, group, outbox or processor
    kind: str
    #: such as `order-billing`, `shop.invoices`; the topic for the outbox
    name: str
    seconds: float
    #: names by which its page is found: category, consumer_id, group_id, pipeline, ...
    subject: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Trouble:
    """Work that has failed or is parked."""

    #: consumer.parked, group.parked, outbox.failed, processor.failed, errors.waiting
    name: str
    count: Count
    subject: Mapping[str, str]
    error: str | None


@dataclass(frozen=True, slots=True)
class Versions:
    """The installed versions."""

    penstock: str
    client_schema: int
    schema: int | None
    message_store: str
    postgresql: str
    edition: str


@dataclass(frozen=True, slots=True)
class Overview:
    """The state of a store."""

    #: the server's clock
    time: datetime
    where: str
    standby: bool
    last_position: int
    #: None on a standby and on a genuine Message DB
    watermark: int | None
    behind: int
    #: oldest first
    held_back_by: tuple[HoldingBack, ...]
    #: the worst first, at most 100 of `reader_count`
    readers: tuple[ReaderLag, ...]
    reader_count: int
    troubles: tuple[Trouble, ...]
    trouble_count: int
    #: by PostgreSQL's statistics
    estimated_messages: int
    archived_messages: int
    #: messages read and written by pipelines in all, for rates
    processor_messages: tuple[int, int]
    versions: Versions


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check of `penstock doctor` has found, and what to do."""

    check: str
    #: OK, warning or PROBLEM
    level: str
    found: str
    advice: str


#: of the readers and of what failed, that an overview has
MOST = 100
_FIGURES: LiteralString = """
select clock_timestamp(),
  (select greatest(c.reltuples, 0)::bigint from pg_catalog.pg_class c
   where c.oid = 'message_store.messages'::regclass)"""
_OF_PENSTOCK: LiteralString = """,
  (select array[coalesce(sum(s.messages_in), 0), coalesce(sum(s.messages_out), 0)]::bigint[]
   from penstock.processors p
   cross join lateral penstock.latest_processor_progress(p.pipeline, p.processor) s)"""


async def overview(store: AsyncStore) -> Overview:
    """Return the state of a store. The cost does not grow with the log."""
    has_penstock = store.context.edition.has_watermark
    sql = _FIGURES + (_OF_PENSTOCK if has_penstock else ", array[0, 0]::bigint[]")
    time, estimated, processed = await store.run(query("overview", sql, (), lambda rows: rows[0]))
    status = await store.run(bounded(operations.status(store.context)))
    figures = await store.run(bounded(health(store.context))) if has_penstock else []
    readers, troubles = _lags(figures), _troubles(figures)
    return Overview(
        time=time,
        where=store.context.settings.where(),
        standby=status.standby,
        last_position=status.head,
        watermark=status.watermark,
        behind=status.behind,
        held_back_by=tuple(holding_back(one) for one in status.open_writers),
        readers=tuple(readers[:MOST]),
        reader_count=len(readers),
        troubles=tuple(troubles[:MOST]),
        trouble_count=len(troubles),
        # without statistics, every position may be a message
        estimated_messages=estimated or max(status.head - status.archived_messages, 0),
        archived_messages=status.archived_messages,
        processor_messages=(processed[0], processed[1]),
        versions=_versions(status),
    )


async def findings(store: AsyncStore) -> tuple[Finding, ...]:
    """Return what `penstock doctor` finds about the server and the database.

    It opens a connection: call it once a minute, not with every look.
    """
    return await run_in_thread(lambda: _checked(store.context.settings))


def _checked(settings: Settings) -> tuple[Finding, ...]:
    with pool.connect(settings) as connection:
        found = list(server_checks(connection, settings.where()))
    return tuple(Finding(name, *one) for name, one in found)


def holding_back(one: OpenWriter) -> HoldingBack:
    """Return an open writer as it is shown."""
    return HoldingBack(
        pid=one.pid,
        role=one.role,
        application=one.application_name,
        state=one.state,
        seconds=None if one.age is None else one.age.total_seconds(),
        bound=one.bound,
        statement=None if one.last_statement is None else shortened(one.last_statement, 1_000),
    )


def _lags(figures: Iterable[HealthFigure]) -> list[ReaderLag]:
    lags = [
        ReaderLag(kind, _name(one), one.value, one.subject)
        for one in figures
        for kind, _, measure in [one.name.partition(".")]
        if measure == "lag" and kind != "watermark"
    ]
    return sorted(lags, key=lambda one: (-one.seconds, one.kind, one.name))


def _name(figure: HealthFigure) -> str:
    if topic := figure.detail.get("oldest_topic"):
        return str(topic)
    separator = "." if "pipeline" in figure.subject else "-"
    return separator.join(figure.subject.values())


def _troubles(figures: Iterable[HealthFigure]) -> list[Trouble]:
    troubles = [
        Trouble(
            one.name,
            Count(int(one.value), bool(one.detail.get("at_least"))),
            one.subject,
            one.detail.get("error"),
        )
        for one in figures
        if one.name.endswith((".parked", ".failed")) and one.value > 0
    ]
    return sorted(troubles, key=lambda one: (one.name != "processor.failed", -one.count.value))


def _versions(status: Status) -> Versions:
    return Versions(
        penstock=penstock.__version__,
        client_schema=SCHEMA_VERSION,
        schema=status.schema_version,
        message_store=status.message_store_version,
        postgresql=status.server_version,
        edition=status.edition.value,
    )
