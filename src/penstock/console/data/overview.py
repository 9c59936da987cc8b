"""The overview: how far the log is, who holds readers back, what lags, what failed, the doctor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from penstock.console.data.pages import Count
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

    #: consumer.parked, group.parked, outbox.failed, processor.failed
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


async def overview(store: AsyncStore) -> Overview:
    """Return the state of a store. The cost does not grow with the log."""
    raise NotImplementedError


async def findings(store: AsyncStore) -> tuple[Finding, ...]:
    """Return what `penstock doctor` finds about the server and the database.

    It opens a connection: call it once a minute, not with every look.
    """
    raise NotImplementedError
