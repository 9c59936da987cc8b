"""Fewer and larger files: small data files of a table are written together, manifests merged.

Each pass is one snapshot, whose operation is `replace`: it changes no row, and those who read a
table snapshot by snapshot pass it over. Steps may commit meanwhile. If the files that were replaced
are still part of the table, the snapshot is written again on top of theirs; otherwise the pass
begins anew.

Files are merged with others of about their size. So a row is written again a few times in all, and
not with each pass, however many steps there are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from penstock.errors import TableChanged
from penstock.extras import from_extra
from penstock.lake.files import file_writer
from penstock.lake.reading import file_reader
from penstock.lake.store_catalog import StoreCatalog
from penstock.lake.transactions import TableTransaction

with from_extra("lake"):
    from pyiceberg.exceptions import CommitFailedException, ValidationException
    from pyiceberg.manifest import DataFile, ManifestFile
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.table.snapshots import Operation, Snapshot, Summary
    from pyiceberg.table.update.snapshot import _MergeAppendFiles, _OverwriteFiles
    from pyiceberg.typedef import EMPTY_DICT

#: files of this size, or with so many rows, are large enough
LARGE_BYTES = 8 * 1024 * 1024
LARGE_ROWS = 1_000_000
#: so many files of about the same size, in one partition, are worth a larger one
SMALL_FILES = 20
#: so many manifests are worth a larger one
MANIFESTS = 20
#: what is written together at most
GROUP_BYTES = 128 * 1024 * 1024
ATTEMPTS = 5


@dataclass(frozen=True)
class Compacted:
    """How many data files were replaced by how many."""

    replaced: int = 0
    written: int = 0


def compact(
    catalog: StoreCatalog,
    name: str,
    *,
    small_files: int = SMALL_FILES,
    manifests: int = MANIFESTS,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Compacted:
    """Write small files together, and merge the manifests if there are many."""
    for _ in range(ATTEMPTS):
        table = catalog.load_table(name)
        groups = list(_small(table, small_files))
        if not groups and _manifest_count(table) < manifests:
            return Compacted()
        old, new = _rewrite(table, groups, progress)
        try:
            _commit(table, old, new)
        except (CommitFailedException, ValidationException):  # a step removed some of the old files
            _delete(table, new)
        else:
            return Compacted(len(old), len(new))
    raise TableChanged(name, ATTEMPTS)


def _manifest_count(table: Table) -> int:
    snapshot = table.current_snapshot()
    return 0 if snapshot is None else len(snapshot.manifests(table.io))


def _small(table: Table, at_least: int) -> Iterator[list[FileScanTask]]:
    """Yield small data files that belong together, by partition and size."""
    groups: dict[Any, list[FileScanTask]] = defaultdict(list)
    for task in table.scan().plan_files():
        file = task.file
        if task.delete_files or file.spec_id != table.spec().spec_id:
            continue  # rows were deleted by others, or it has the partitions of an earlier time
        if file.file_size_in_bytes < LARGE_BYTES and file.record_count < LARGE_ROWS:
            magnitude = file.file_size_in_bytes.bit_length() // 4
            groups[file.partition, magnitude].append(task)
    for tasks in groups.values():
        if len(tasks) >= at_least:
            yield from _bins(tasks)


def _bins(tasks: list[FileScanTask]) -> Iterator[list[FileScanTask]]:
    bin: list[FileScanTask] = []
    size = 0
    for task in tasks:
        bin.append(task)
        size += task.file.file_size_in_bytes
        if size >= GROUP_BYTES:
            yield bin
            bin, size = [], 0
    if len(bin) > 1:
        yield bin


def _rewrite(
    table: Table, groups: list[list[FileScanTask]], progress: Callable[[int, int], None]
) -> tuple[list[DataFile], list[DataFile]]:
    """Write each group of files together. Return the old files and the new ones."""
    old: list[DataFile] = []
    new: list[DataFile] = []
    try:
        for tasks in groups:
            progress(len(old), sum(map(len, groups)))
            new.extend(file_writer(table).write(file_reader(table).read(tasks)))
            old.extend(task.file for task in tasks)
    except BaseException:
        _delete(table, new)
        raise
    return old, new


def _delete(table: Table, files: list[DataFile]) -> None:
    for one in files:
        with suppress(OSError):  # it is removed later, with others that no snapshot names
            table.io.delete(one.file_path)


def _commit(table: Table, old: list[DataFile], new: list[DataFile]) -> None:
    transaction = TableTransaction(table)
    with _Replace(Operation.OVERWRITE, transaction, table.io) as replace:
        for one in old:
            replace.delete_data_file(one)
        for one in new:
            replace.append_data_file(one)
    transaction.commit_transaction()


class _Replace(_OverwriteFiles, _MergeAppendFiles):
    """Replaces data files without a change of rows, and merges manifests.

    If others committed meanwhile, pyiceberg does it again on top of theirs. It fails if one of the
    files that are replaced is gone.
    """

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        """Merge all manifests, and not only if there are as many as the table's property says."""
        self._min_count_to_merge = 2
        return super()._process_manifests(manifests)

    def _validate_concurrency(self) -> None:
        """Fail if rows were deleted beside the data files: they would be in the new files."""
        window = self._commit_window
        if window is not None and _delete_files(window.base) != _delete_files(window.head):
            raise ValidationException("others deleted rows meanwhile")

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        found = super()._summary(snapshot_properties)
        return Summary(Operation.REPLACE, **found.additional_properties)


def _delete_files(snapshot: Snapshot | None) -> str | None:
    summary = None if snapshot is None else snapshot.summary
    return None if summary is None else summary.additional_properties.get("total-delete-files")
