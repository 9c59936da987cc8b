"""Reading the data files of a table, wherever the rows are needed: on the driver or in a task."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from penstock.extras import from_extra
from penstock.lake.files import read_rows
from penstock.lake.transactions import without_history

with from_extra("lake"):
    from pyiceberg.catalog.noop import NoopCatalog
    from pyiceberg.io import load_file_io
    from pyiceberg.io.pyarrow import schema_to_pyarrow
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.table.metadata import TableMetadataUtil


@dataclass(frozen=True)
class FileReader:
    """Reads data files of a table, wherever it is sent to."""

    metadata: str = field(repr=False)
    properties: Mapping[str, str] = field(repr=False)

    def read(self, files: Sequence[FileScanTask]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of data files, with the columns that the table has now."""
        for one in files:
            yield from read_rows(self._table, one).cast(self.columns).to_batches()

    @cached_property
    def columns(self) -> pa.Schema:
        """The table's columns, as Arrow has them."""
        return schema_to_pyarrow(self._table.schema(), include_field_ids=False)

    @cached_property
    def _table(self) -> Table:
        metadata = TableMetadataUtil.parse_raw(self.metadata)
        io = load_file_io(dict(self.properties), metadata.location)
        return Table(("read",), metadata, metadata.location, io, NoopCatalog("read"))


def file_reader(table: Table) -> FileReader:
    """Return what reads data files of a table."""
    metadata = without_history(table.metadata)
    return FileReader(metadata.model_dump_json(), dict(table.io.properties))


def to_bytes(task: FileScanTask) -> bytes:
    """Return a data file, with the files that delete rows of it, to be sent to an executor."""
    return pickle.dumps((task.file, task.file.spec_id, task.delete_files))


def from_bytes(text: bytes) -> FileScanTask:
    """Return what `to_bytes` was called with."""
    file, spec_id, deletes = pickle.loads(text)
    file.spec_id = spec_id  # which is not pickled
    return FileScanTask(file, deletes)
