"""Commits of pyiceberg whose cost does not grow with the number of a table's snapshots.

pyiceberg 0.12 copies the metadata of a table in depth, each of its snapshots included, in each
commit, and each time that somebody looks at the metadata of a transaction: some twenty times. None
of it ever changes.
"""

from __future__ import annotations

from typing import Any, Self

from penstock.extras import from_extra

with from_extra("lake"):
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot, SnapshotLogEntry


class TableTransaction(Transaction):
    """A transaction that computes its metadata once after each change."""

    def __init__(self, table: Table, autocommit: bool = False) -> None:
        super().__init__(table, autocommit)
        self._computed: tuple[TableMetadata, tuple[object, ...], TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """The table's metadata, with the changes that are staged."""
        base, updates = self._table.metadata, self._updates
        if not updates:
            return base
        known = self._computed
        if known is None or known[0] is not base or known[1] is not updates:
            known = self._computed = base, updates, super().table_metadata
        return known[2]


class _SharedSnapshot(Snapshot):
    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return self


class _SharedLogEntry(SnapshotLogEntry):
    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return self


def share_history(metadata: TableMetadata) -> None:
    """Let all copies of this metadata have its snapshots in common."""
    for one in metadata.snapshots:
        object.__setattr__(one, "__class__", _SharedSnapshot)
    for entry in metadata.snapshot_log:
        object.__setattr__(entry, "__class__", _SharedLogEntry)


def without_history(metadata: TableMetadata) -> TableMetadata:
    """Return what is needed of metadata to read and write data files: none of its snapshots."""
    return metadata.model_copy(
        update={
            "current_snapshot_id": None,
            "snapshots": [],
            "snapshot_log": [],
            "metadata_log": [],
            "refs": {},
            "statistics": [],
            "partition_statistics": [],
        }
    )
