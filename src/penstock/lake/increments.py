"""The rows that were added to a table since one of its snapshots.

At first these are all rows of its newest snapshot. After that, each snapshot names the data files
that it added. Snapshots that replaced files without a change of rows, as compaction does, are
passed over. A snapshot that replaced or deleted rows is refused: what it took away cannot be read
from what it added.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from penstock.errors import WrongTable
from penstock.extras import from_extra

with from_extra("lake"):
    from pyiceberg.manifest import DataFile, ManifestEntryStatus
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.table.snapshots import Operation, Snapshot

_ANEW = "to read all of its rows anew, give the source another name"


@dataclass(frozen=True)
class Increment:
    """Data files that were added to a table, up to a snapshot."""

    snapshot_id: int
    files: tuple[FileScanTask, ...]

    @property
    def rows(self) -> int:
        """How many rows the files have."""
        return sum(one.file.record_count for one in self.files)


def increment_after(table: Table, snapshot_id: int | None) -> Increment | None:
    """Return what was added after a snapshot (None: all there is), or None if nothing happened."""
    newest = table.current_snapshot()
    if newest is None or newest.snapshot_id == snapshot_id:
        return None
    if snapshot_id is None:
        return Increment(newest.snapshot_id, tuple(table.scan().plan_files()))
    later = list(_since(table, newest, snapshot_id))
    files = [file for one in reversed(later) for file in _added(table, one)]
    return Increment(newest.snapshot_id, tuple(FileScanTask(one) for one in files))


def _since(table: Table, newest: Snapshot, snapshot_id: int) -> Iterator[Snapshot]:
    """Yield snapshots from the newest back to the one after `snapshot_id`."""
    one = newest
    while one.snapshot_id != snapshot_id:
        yield one
        parent = one.parent_snapshot_id
        before = None if parent is None else table.snapshot_by_id(parent)
        if before is None:
            problem = f"no longer has the snapshot {snapshot_id}, up to which it was read: it was"
            _refuse(table, f"{problem} expired, or the table was replaced; {_ANEW}")
        one = before


def _added(table: Table, snapshot: Snapshot) -> Iterator[DataFile]:
    operation = None if snapshot.summary is None else snapshot.summary.operation
    if operation == Operation.REPLACE:
        return
    if operation != Operation.APPEND:
        kind = operation.value if operation else "unknown"
        problem = f"cannot be read on: its snapshot {snapshot.snapshot_id} ({kind}) replaced or"
        _refuse(table, f"{problem} deleted rows, and only what is added can be read; {_ANEW}")
    for manifest in snapshot.manifests(table.io):
        if manifest.added_snapshot_id != snapshot.snapshot_id:
            continue
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            is_new = entry.status == ManifestEntryStatus.ADDED
            if is_new and entry.snapshot_id in (None, snapshot.snapshot_id):
                yield entry.data_file


def _refuse(table: Table, problem: str) -> NoReturn:
    raise WrongTable(".".join(table.name()), problem)
