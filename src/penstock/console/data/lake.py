"""The tables of the lake and their snapshots. Files of the warehouse are read, in a thread."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, LiteralString

from penstock.console.data.pages import query
from penstock.database.operation import only_value
from penstock.errors import TableNotFound
from penstock.loops.concurrency_async import run_in_thread
from penstock.message import check_text
from penstock.settings import Settings
from penstock.store_async import AsyncStore

if TYPE_CHECKING:  # needs the extra `lake`
    from penstock.lake import StoreCatalog, TableSummary

MOST = 200


@dataclass(frozen=True, slots=True)
class LakeTable:
    """A table of the lake."""

    name: str
    rows: int
    files: int
    size_in_bytes: int
    snapshots: int
    last_commit: datetime | None
    written_by: str | None
    location: str


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """A snapshot of a table of the lake."""

    snapshot_id: int
    committed_at: datetime
    operation: str
    added_rows: int | None
    total_rows: int | None
    #: of the pipeline's step that wrote it
    pipeline: str | None
    processor: str | None
    delivery: str | None


async def lake_tables(store: AsyncStore) -> tuple[LakeTable, ...]:
    """Return the tables of the lake, by one file each; none if the store has no warehouse.

    At most 200.
    """
    if not await has_lake(store):
        return ()
    return await run_in_thread(lambda: _tables(store.context.settings))


async def lake_table(store: AsyncStore, name: str) -> tuple[LakeTable, tuple[TableSnapshot, ...]]:
    """Return a table and its newest 200 snapshots, or raise `TableNotFound`."""
    check_text("table", name)
    if not await has_lake(store):
        raise TableNotFound(name)
    return await run_in_thread(lambda: _table(store.context.settings, name))


async def has_lake(store: AsyncStore) -> bool:
    """Whether the store has a warehouse, and its catalog exists: looking creates none."""
    if store.context.settings.warehouse is None:
        return False
    sql: LiteralString = "select to_regclass('iceberg_tables') is not null"
    return bool(await store.run(query("has_lake", sql, (), only_value)))


async def commits_of(
    store: AsyncStore, pipeline: str, processor: str, delivery: str
) -> list[tuple[str, TableSnapshot]]:
    """Return the snapshots that a step has committed, of the tables that its processor wrote last.

    Each with the name of its table.
    """

    def look() -> list[tuple[str, TableSnapshot]]:
        settings = store.context.settings
        writer = f"{pipeline}.{processor}"
        written = [one.name for one in _tables(settings) if one.written_by == writer]
        return [
            (name, one)
            for name in written
            for one in _table(settings, name)[1]
            if one.delivery == delivery
        ]

    return await run_in_thread(look)


def _tables(settings: Settings) -> tuple[LakeTable, ...]:
    from penstock.lake import tables

    found = tables(_catalog(settings))
    return tuple(_listed(one) for one in islice(found, MOST))


def _table(settings: Settings, name: str) -> tuple[LakeTable, tuple[TableSnapshot, ...]]:
    from pyiceberg.exceptions import NoSuchTableError

    from penstock.lake.create import usable
    from penstock.lake.overview import summary

    catalog = _catalog(settings)
    try:
        with usable(catalog.properties):
            table = catalog.load_table(name)
    except (NoSuchTableError, ValueError):
        raise TableNotFound(name) from None
    newest = sorted(table.snapshots(), key=lambda one: one.sequence_number or 0, reverse=True)
    return _listed(summary(table)), tuple(_snapshot(one) for one in newest[:MOST])


def _catalog(settings: Settings) -> StoreCatalog:
    from penstock.lake.store_catalog import open_catalog

    return open_catalog(settings)


def _listed(one: TableSummary) -> LakeTable:
    return LakeTable(
        *(one.name, one.rows, one.files, one.size_in_bytes, one.snapshots, one.last_commit),
        *(one.written_by, one.location),
    )


def _snapshot(one: Any) -> TableSnapshot:
    facts = {} if one.summary is None else one.summary.additional_properties
    added, total = facts.get("added-records"), facts.get("total-records")
    return TableSnapshot(
        snapshot_id=one.snapshot_id,
        committed_at=datetime.fromtimestamp(one.timestamp_ms / 1000, UTC),
        operation="unknown" if one.summary is None else one.summary.operation.value,
        added_rows=None if added is None else int(added),
        total_rows=None if total is None else int(total),
        pipeline=facts.get("pipeline"),
        processor=facts.get("processor"),
        delivery=facts.get("delivery"),
    )
