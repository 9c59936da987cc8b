"""A lake with a table of sales, written without Spark."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pyarrow import fs
from pyiceberg.table import Table

from penstock.lake.changes import TableChange
from penstock.lake.create import prepare_table
from penstock.lake.declaration import lake_table
from penstock.lake.files import file_writer
from penstock.lake.store_catalog import StoreCatalog, open_catalog
from penstock.settings import Settings

COLUMNS = pa.schema(
    [pa.field("n", pa.int64(), nullable=False), ("item", pa.string()), ("day", pa.date32())]
)
NAME = "shop.sale"
DAY = date(2026, 1, 31)


@pytest.fixture
def lake(database_url: str, tmp_path: Path) -> StoreCatalog:
    """The catalog of a fresh database, with its warehouse in a folder of the test."""
    return another(database_url, tmp_path)


def another(database_url: str, folder: Path) -> StoreCatalog:
    return open_catalog(Settings.load(database_url, warehouse=f"file://{folder}/lake"))


def create(lake: StoreCatalog, name: str = NAME, **layout: str) -> Table:
    return prepare_table(lake, name, lake_table(name, **layout), COLUMNS)


def rows(*numbers: int, day: date = DAY) -> pa.Table:
    found = [{"n": n, "item": f"item {n}", "day": day} for n in numbers]
    return pa.Table.from_pylist(found, COLUMNS)


def sell(lake: StoreCatalog, *numbers: int, name: str = NAME, day: date = DAY) -> None:
    """Commit a snapshot with these rows, in one file."""
    lake.load_table(name).append(rows(*numbers, day=day))


def never_committed(lake: StoreCatalog, *numbers: int, name: str = NAME) -> list[str]:
    """Write data files as a step does that is killed before its commit. Return their paths."""
    writer = file_writer(lake.load_table(name))
    return [path_of(one.file_path) for one in writer.write(rows(*numbers).to_batches())]


def change(
    lake: StoreCatalog, connection: psycopg.Connection[Any], *numbers: int, **layout: str
) -> TableChange:
    """Write data files as a step does that commits on this connection."""
    bound = lake.on(connection)
    table = create(bound, **layout)
    added = rows(*numbers)
    files = list(file_writer(table).write(added.to_batches()))
    declared = lake_table(NAME, **layout)
    keys = added.select(["n"]) if declared.key else None
    return TableChange(bound, declared, table, files, keys)


def numbers(table: Table) -> list[int]:
    return sorted(table.scan(selected_fields=("n",)).to_arrow()["n"].to_pylist())


def path_of(location: str) -> str:
    return location.removeprefix("file://")


def files_in(folder: str) -> set[str]:
    found = fs.LocalFileSystem().get_file_info(fs.FileSelector(path_of(folder), recursive=True))
    return {one.path for one in found if one.type == fs.FileType.File}
