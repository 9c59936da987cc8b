"""Writing the data files of a table, wherever the rows are, and reading one of them.

A writer can be sent to executors. Each file has a name of its own, so an attempt that is repeated
never overwrites the files of another one: those that no snapshot names are removed by `upkeep`.

Files are written here, and not by pyiceberg's `append`, because pyiceberg 0.12 turns a null list of
structs into an empty one, when it writes and when it reads (apache/iceberg-python#3833).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import IO, Any, cast
from uuid import uuid4

import pyarrow as pa
from pyarrow import parquet

from penstock.extras import from_extra
from penstock.lake.transactions import without_history

with from_extra("lake"):
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io import FileIO, load_file_io
    from pyiceberg.io.fileformat import FileFormatFactory
    from pyiceberg.io.pyarrow import (
        ArrowScan,
        _determine_partitions,
        pyarrow_to_schema,
        schema_to_pyarrow,
    )
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.partitioning import PartitionKey
    from pyiceberg.schema import Schema, index_name_by_id, sanitize_column_names
    from pyiceberg.table import FileScanTask, Table, TableProperties
    from pyiceberg.table.locations import load_location_provider
    from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
    from pyiceberg.table.sorting import SortDirection
    from pyiceberg.typedef import Record
    from pyiceberg.utils.properties import property_as_int

#: rows that a task holds in memory before it writes a file
CHUNK_BYTES = 128 * 1024 * 1024
#: file systems have 255 bytes for a name, which partition values of any length do not fit
LONGEST_FOLDER = 200


@dataclass(frozen=True)
class FileWriter:
    """Writes rows to data files of a table."""

    #: the table's metadata as JSON, and how to sign in to its warehouse
    metadata: str = field(repr=False)
    properties: Mapping[str, str] = field(repr=False)

    def write(self, batches: Iterable[pa.RecordBatch]) -> Iterator[DataFile]:
        """Write rows, and yield each data file with its statistics."""
        table = self._table
        for chunk in _chunks(batches):
            rows = self._sorted(self._with_all_columns(chunk))
            if table.spec().is_unpartitioned():
                yield self._write(rows)
                continue
            for part in _determine_partitions(table.spec(), table.schema(), rows):
                yield self._write(part.arrow_table_partition, part.partition_key)

    @cached_property
    def columns(self) -> pa.Schema:
        """The table's columns, as Arrow has them."""
        return schema_to_pyarrow(self._table.schema(), include_field_ids=False)

    @cached_property
    def _table(self) -> TableMetadata:
        return TableMetadataUtil.parse_raw(self.metadata)

    @cached_property
    def _io(self) -> FileIO:
        return load_file_io(dict(self.properties), self._table.location)

    @cached_property
    def _file_schema(self) -> Schema:
        return sanitize_column_names(self._table.schema())

    def _write(self, rows: pa.Table, partition: PartitionKey | None = None) -> DataFile:
        """Write a file of one partition."""
        table, schema = self._table, self._file_schema
        form = FileFormatFactory.get(FileFormat.PARQUET)
        locations = load_location_provider(table.location, table.properties)
        folders = partition.to_path().split("/") if partition else []
        fits = all(len(one) <= LONGEST_FOLDER for one in folders)
        path = locations.new_data_location(f"{uuid4()}.parquet", partition if fits else None)
        output = self._io.new_output(path)
        with form.create_writer(output, schema, dict(_row_groups(rows, table.properties))) as file:
            file.write(pa.Table.from_arrays(rows.columns, schema=schema_to_pyarrow(schema)))
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=partition.partition if partition else Record(),
            file_size_in_bytes=len(output),
            sort_order_id=None,
            spec_id=table.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **file.result().to_serialized_dict(),
        )

    def _with_all_columns(self, rows: pa.Table) -> pa.Table:
        """Return the rows with the table's columns, in its order and types; missing ones null."""
        arrays = [
            rows.column(one.name).cast(one.type)
            if one.name in rows.schema.names
            else pa.nulls(rows.num_rows, one.type)
            for one in self.columns
        ]
        return pa.Table.from_arrays(arrays, schema=self.columns)

    def _sorted(self, rows: pa.Table) -> pa.Table:
        order = self._table.sort_order_by_id(self._table.default_sort_order_id)
        if order is None or order.is_unsorted:
            return rows
        schema = self._table.schema()
        keys = [
            (
                str(schema.find_column_name(one.source_id)),
                "descending" if one.direction == SortDirection.DESC else "ascending",
            )
            for one in order.fields
        ]
        return rows.sort_by(keys)


def _row_groups(rows: pa.Table, properties: Mapping[str, str]) -> Mapping[str, str]:
    """Return properties in which the size of row groups, if it is in bytes, is a number of rows.

    pyiceberg 0.12 ignores a size in bytes, and warns of it. Rows count as large as their average.
    """
    size = property_as_int(dict(properties), TableProperties.PARQUET_ROW_GROUP_SIZE_BYTES)
    if size is None:
        return properties
    limit = TableProperties.PARQUET_ROW_GROUP_LIMIT
    default = TableProperties.PARQUET_ROW_GROUP_LIMIT_DEFAULT
    most = property_as_int(dict(properties), limit, default) or default
    row_size = max(1, rows.nbytes // max(1, rows.num_rows))
    chosen = dict(properties) | {limit: str(max(1, min(most, size // row_size)))}
    del chosen[TableProperties.PARQUET_ROW_GROUP_SIZE_BYTES]
    return chosen


def file_writer(table: Table) -> FileWriter:
    """Return what writes data files of a table."""
    metadata = without_history(table.metadata)
    return FileWriter(metadata.model_dump_json(), dict(table.io.properties))


def read_rows(table: Table, task: FileScanTask) -> pa.Table:
    """Return the rows of a data file that are not deleted, with the table's columns of today."""
    if not task.delete_files and task.file.file_format == FileFormat.PARQUET:
        with table.io.new_input(task.file.file_path).open() as file:
            rows = parquet.ParquetFile(cast(IO[Any], file)).read()
        if _has_the_names_of(table.schema(), rows.schema):
            return file_writer(table)._with_all_columns(rows)
    scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
    return scan.to_table([task])


def _has_the_names_of(schema: Schema, rows: pa.Schema) -> bool:
    """Whether no column of a file was renamed, or dropped and added again, since it was written."""
    try:
        written = index_name_by_id(pyarrow_to_schema(rows))
    except ValueError:  # without the ids of columns
        return False
    today = index_name_by_id(schema)
    ids = {name: one for one, name in today.items()}
    return all(
        today.get(one, name) == name and ids.get(name, one) == one for one, name in written.items()
    )


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            size += batch.nbytes
        if size > CHUNK_BYTES:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)
