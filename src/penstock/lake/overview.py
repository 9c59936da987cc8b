"""What is in the lake: its tables, with their sizes and when they changed last."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from penstock.extras import from_extra
from penstock.lake.create import usable
from penstock.lake.store_catalog import StoreCatalog

with from_extra("lake"):
    import sqlalchemy
    from pyiceberg.table import Table

_NAMESPACES = sqlalchemy.text(
    "select distinct table_namespace from iceberg_tables where catalog_name = :catalog"
)


@dataclass(frozen=True)
class TableSummary:
    """One table of the lake, as its newest snapshot describes it."""

    name: str
    rows: int
    files: int
    size_in_bytes: int
    snapshots: int
    #: None: nothing was written yet
    last_commit: datetime | None
    #: the pipeline and processor that wrote to it last: `shop.invoice_lines`; None if others did
    written_by: str | None
    location: str


def tables(catalog: StoreCatalog) -> Iterator[TableSummary]:
    """Yield the tables by name. Each costs one small file to read."""
    for name in table_names(catalog):
        with usable(catalog.properties):
            table = catalog.load_table(name)
        yield summary(table)


def table_names(catalog: StoreCatalog) -> list[str]:
    """Return the names of all tables, sorted."""
    with catalog.engine.connect() as connection:
        found = connection.execute(_NAMESPACES, {"catalog": catalog.name})
        namespaces = [str(one) for (one,) in found]
    return sorted(".".join(name) for one in namespaces for name in catalog.list_tables(one))


def summary(table: Table) -> TableSummary:
    """Return what the newest snapshot of a table says of it."""
    snapshot = table.current_snapshot()
    newest = None if snapshot is None else snapshot.summary
    found = {} if newest is None else newest.additional_properties
    return TableSummary(
        ".".join(table.name()),
        int(found.get("total-records", 0)),
        int(found.get("total-data-files", 0)),
        int(found.get("total-files-size", 0)),
        len(table.snapshots()),
        None if snapshot is None else datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC),
        _writer(table),
        table.location(),
    )


def _writer(table: Table) -> str | None:
    """Return what wrote the newest snapshot that is not of upkeep, if it was a pipeline."""
    for one in sorted(table.snapshots(), key=lambda one: one.sequence_number or 0, reverse=True):
        if one.summary is not None and one.summary.operation.value != "replace":
            found = one.summary.additional_properties
            pipeline, processor = found.get("pipeline"), found.get("processor")
            return f"{pipeline}.{processor}" if pipeline and processor else None
    return None
