"""Writes Arrow tables to tables of the lake as a step does, without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy.engine import URL

from penstock.lake.changes import TableChange
from penstock.lake.create import prepare_table
from penstock.lake.declaration import LakeTable
from penstock.lake.files import file_writer
from penstock.lake.store_catalog import StoreCatalog, open_catalog
from penstock.settings import Settings


@dataclass
class LakeWriter:
    """A catalog on a connection, and steps that are committed on it."""

    catalog: StoreCatalog
    connection: psycopg.Connection[Any] = field(repr=False)

    def stage(self, declared: LakeTable, rows: pa.Table) -> TableChange:
        """Write rows to data files and stage them. Each row has a key of its own."""
        table = prepare_table(self.catalog, declared.name, declared, rows.schema)
        files = list(file_writer(table).write(rows.to_batches()))
        keys = rows.select(list(declared.key)) if declared.key else None
        change = TableChange(self.catalog, declared, table, files, keys)
        change.stage()
        return change

    def delete(self, declared: LakeTable, keys: pa.Table) -> None:
        """Delete the rows with these keys."""
        table = self.catalog.load_table(declared.name)
        change = TableChange(self.catalog, declared, table, [], keys)
        change.stage()
        self.commit(change)

    def commit(self, change: TableChange) -> None:
        with self.connection.transaction():
            change.commit()
        change.committed()

    def write(self, declared: LakeTable, rows: pa.Table) -> None:
        self.commit(self.stage(declared, rows))

    def rows(self, name: str, order: Sequence[str] = ("n",)) -> list[dict[str, Any]]:
        """Return the rows of a table, as somebody else reads them."""
        table = self.catalog.load_table(name).scan().to_arrow()
        found: list[dict[str, Any]] = table.sort_by([(o, "ascending") for o in order]).to_pylist()
        return found


def lake_settings(url: str, warehouse: Path, **options: str) -> Settings:
    return Settings.load(url, warehouse=f"file://{warehouse}", lake_options=options)


@contextmanager
def lake_writer(url: str, warehouse: Path) -> Iterator[LakeWriter]:
    with psycopg.connect(url, autocommit=True) as connection:
        found = open_catalog(lake_settings(url, warehouse)).on(connection)
        yield LakeWriter(found, connection)


def other_catalog(url: str) -> SqlCatalog:
    """The catalog as somebody opens it who has pyiceberg and no Penstock."""
    with psycopg.connect(url) as connection:
        parts = connection.info
        address = URL.create(
            "postgresql+psycopg", parts.user, database=parts.dbname,
            query={"host": parts.host, "port": str(parts.port)},
        )  # fmt: skip
    return SqlCatalog("penstock", uri=address.render_as_string(hide_password=False))
