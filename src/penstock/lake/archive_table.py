"""The archive's table: old messages of the log, a row each, in the columns of the log.

It is an ordinary Iceberg table, partitioned by category and sorted by global position, so that a
read of a category or of a range of positions opens few files, and few row groups of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.extras import from_extra
from penstock.lake.create import prepare_table
from penstock.lake.declaration import LakeTable, lake_table
from penstock.lake.store_catalog import StoreCatalog

with from_extra("lake"):
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

NAME = "penstock.archive"
COLUMNS = pa.schema(
    {
        "global_position": pa.int64(),
        "stream_name": pa.string(),
        "position": pa.int64(),
        "id": pa.string(),
        "type": pa.string(),
        "data": pa.string(),
        "metadata": pa.string(),
        "time": pa.timestamp("us", "UTC"),
        "category": pa.string(),
    }
)
#: how files are laid out. A reader decodes whole row groups, of about so many bytes before
#: compression: smaller ones take a scan longer, larger ones a page of a stream. A dictionary of
#: values that hardly repeat, such as ids and data, would make files larger and slower to read: its
#: size is looked at after each so many rows, by default after 20,000
_LAYOUT = {
    "write.parquet.row-group-size-bytes": str(8 * 1024 * 1024),
    "write.parquet.row-group-limit": "50000",
    "write.parquet.dict-size-bytes": str(16 * 1024),
    "write.parquet.page-row-limit": "1000",
}


def declared() -> LakeTable:
    """Return the declaration of the archive's table."""
    return lake_table(NAME, partition_by="category", sort_by="global_position")


def prepare(catalog: StoreCatalog) -> Table:
    """Return the archive's table, created if there is none."""
    table = prepare_table(catalog, NAME, declared(), COLUMNS)
    if not _LAYOUT.items() <= table.properties.items():
        with table.transaction() as transaction:
            transaction.set_properties(_LAYOUT)
    return table


def batches(category: str, rows: Sequence[tuple[Any, ...]]) -> Iterator[pa.RecordBatch]:
    """Yield messages of a category as rows of the table."""
    columns: Iterable[Any] = zip(*rows, strict=True)
    arrays = [pa.array(values, one.type) for values, one in zip(columns, COLUMNS, strict=False)]
    arrays.append(pa.array([category] * len(rows), pa.string()))
    yield pa.RecordBatch.from_arrays(arrays, schema=COLUMNS)


def read_back(table: Table, files: Iterable[DataFile]) -> pa.Table:
    """Return the messages that data files hold, read from the warehouse, in order."""
    parts = []
    for one in files:
        with table.io.new_input(one.file_path).open() as file:
            parts.append(pq.read_table(file, columns=COLUMNS.names).cast(COLUMNS))
    return pa.concat_tables(parts).sort_by("global_position")


def rows_of(messages: pa.Table) -> Iterator[tuple[Any, ...]]:
    """Yield the messages as tuples without the category, with times in microseconds."""
    times = messages.column("time").cast(pa.int64())
    names = COLUMNS.names[:-2]
    columns = [messages.column(name).to_pylist() for name in names]
    yield from zip(*columns, times.to_pylist(), strict=True)
