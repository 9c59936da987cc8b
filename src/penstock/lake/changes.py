"""What a step does to a table: append rows, merge them by key, or replace partitions.

A change is staged first: its manifests are written, for the table as it was read. `commit` runs in
the transaction of the step. It locks the table's row in the catalog, writes the new metadata file
and names it in the row. If others have committed since the table was read, such as a compaction,
the change is staged again for the table as it is now. Its data files stay the same, and the
processor's function does not run again.

A row is never changed in place. To merge rows by key, each data file that holds one of the keys is
replaced by one without them: readers need no delete files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import TableReplaced
from penstock.extras import from_extra
from penstock.lake.catalog_rows import lock_table
from penstock.lake.create import usable
from penstock.lake.declaration import APPEND, OVERWRITE, LakeTable
from penstock.lake.files import file_writer, read_rows
from penstock.lake.store_catalog import StoreCatalog, psycopg_errors
from penstock.lake.transactions import TableTransaction
from penstock.lake.upkeep import maintain_when_due

with from_extra("lake"):
    from pyiceberg.expressions import (
        And,
        BooleanExpression,
        GreaterThanOrEqual,
        In,
        LessThanOrEqual,
        Reference,
    )
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.metadata import TableMetadata

#: up to so many values pyiceberg compares one by one with what a file's statistics say
_FEW = 200


@dataclass
class TableChange:
    """The change of a table by one step: data files that are written, and how they are added."""

    catalog: StoreCatalog
    declared: LakeTable
    #: as it was when the change was staged; its metadata is the new one after the commit
    table: Table
    files: Sequence[DataFile]
    #: the keys of all rows, also of those that only delete
    keys: pa.Table | None = None
    #: what the snapshot says of its origin
    summary: Mapping[str, str] = field(default_factory=dict)
    #: data files that replace others, to merge by key
    _rewritten: list[DataFile] = field(default_factory=list)
    _staged: Transaction | None = None
    _before: TableMetadata | None = None

    def __post_init__(self) -> None:
        """Number the partitions of the files, which is not pickled with them."""
        for one in self.files:
            one.spec_id = self.table.spec().spec_id

    @property
    def name(self) -> str:
        """The name of the table."""
        return ".".join(self.table.name())

    @property
    def rows(self) -> int:
        """How many rows it adds."""
        return sum(one.record_count for one in self.files)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to add or delete."""
        return not self.files and (self.keys is None or not self.keys.num_rows)

    def stage(self) -> None:
        """Write the manifests, for the table for which the data files were written."""
        if not self.is_empty:
            with usable(self.catalog.properties), psycopg_errors():
                self._staged = self._stage()

    def _stage_again(self) -> None:
        """Write them for the table as others have left it."""
        with psycopg_errors():
            table = self.catalog.load_table(self.name)
        known, found = self.table.metadata, table.metadata
        if (known.table_uuid, known.default_spec_id) != (found.table_uuid, found.default_spec_id):
            raise TableReplaced(self.name)  # by another table, or with other partitions
        self._remove(self._rewritten)
        self.table, self._rewritten = table, []
        self.stage()

    def commit(self) -> None:
        """Make the change part of the open transaction of the catalog's connection."""
        if self.is_empty:
            return
        assert self.catalog.connection is not None
        location = lock_table(self.catalog.connection, self.name)
        if location is None:
            raise TableReplaced(self.name)
        if self.table.metadata_location != location:
            self._stage_again()  # nobody else can commit meanwhile
        assert self._staged is not None
        self._before = self.table.metadata
        with usable(self.catalog.properties), psycopg_errors():
            self._staged.commit_transaction()

    def committed(self) -> None:
        """Do what the table needs now and then, now that the transaction is committed."""
        if self._before is not None:
            self.catalog.delete_old_metadata(self.table.io, self._before, self.table.metadata)
            maintain_when_due(self.catalog, self.table)

    def discard(self) -> None:
        """Remove the data files of a change that will never be committed."""
        self._remove([*self.files, *self._rewritten])

    def _remove(self, files: Sequence[DataFile]) -> None:
        for one in files:
            with suppress(OSError):  # upkeep removes it later
                self.table.io.delete(one.file_path)

    def _stage(self) -> Transaction:
        transaction = TableTransaction(self.table)
        replaced = self._replaced()
        added = (*self._rewritten, *self.files)
        if not replaced and not added:
            return transaction  # the keys to delete are not there
        update = transaction.update_snapshot(snapshot_properties=dict(self.summary))
        with update.overwrite() if replaced else update.merge_append() as producer:
            for one in replaced:
                producer.delete_data_file(one)
            for one in added:
                producer.append_data_file(one)
        return transaction

    def _replaced(self) -> list[DataFile]:
        """Return the data files that the change removes. Rows that stay are in `_rewritten`."""
        if self.declared.mode == APPEND:
            return []
        if self.declared.mode == OVERWRITE:
            touched = {(one.spec_id, one.partition) for one in self.files}
            found = (task.file for task in self.table.scan().plan_files())
            return [one for one in found if (one.spec_id, one.partition) in touched]
        return list(self._without_keys())

    def _without_keys(self) -> Iterator[DataFile]:
        """Yield the data files that hold keys of this step; write their other rows to new ones."""
        assert self.keys is not None
        table, writer = self.table, file_writer(self.table)
        keys = self.keys.cast(pa.schema([writer.columns.field(name) for name in self.declared.key]))
        for task in table.scan(row_filter=_among(keys)).plan_files():  # one at a time in memory
            rows = read_rows(table, task)
            kept = rows_without(rows, keys)
            if kept.num_rows < rows.num_rows:
                self._rewritten += writer.write(kept.to_batches())
                yield task.file


def rows_without(rows: pa.Table, keys: pa.Table) -> pa.Table:
    """Return the rows whose key is not among these."""
    numbered = rows.select(keys.schema.names).append_column(
        "_row", pa.array(range(rows.num_rows), pa.int64())
    )
    left = numbered.cast(pa.schema([*keys.schema, ("_row", pa.int64())])).join(
        keys, keys.schema.names, join_type="left anti"
    )
    return rows.take(left.column("_row").sort())


def _among(keys: pa.Table) -> BooleanExpression:
    """Return a filter by which files that cannot hold any of these keys are not read."""
    return reduce(And, [_has(name, keys.column(name)) for name in keys.schema.names])


def _has(name: str, column: pa.ChunkedArray) -> BooleanExpression:
    values, term = column.unique(), Reference(name)
    if len(values) <= _FEW:
        return In(term=term, values=values.to_pylist())
    low, high = (one.as_py() for one in pc.min_max(values).values())
    return And(GreaterThanOrEqual(term=term, value=low), LessThanOrEqual(term=term, value=high))
