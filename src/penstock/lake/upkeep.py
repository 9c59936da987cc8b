"""Upkeep of a table: fewer and larger files, fewer snapshots, and no files that nobody needs.

- Small files are written together: see `compaction`.
- Snapshots that are old or too many are expired, so that the metadata file stays small: it is read
  and written by each commit. Those that a source of a pipeline has yet to read are kept.
- Files that no snapshot names are removed after a while: see `unused`.

A pipeline does this by itself after each so many commits to a table, outside the step's
transaction. If it fails, that is logged, and the step has been committed all the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from penstock.errors import TableChanged, ValidationError, WrongTable, first_line
from penstock.extras import from_extra
from penstock.lake.compaction import ATTEMPTS, SMALL_FILES, Compacted, compact
from penstock.lake.create import usable
from penstock.lake.overview import table_names
from penstock.lake.store_catalog import StoreCatalog
from penstock.lake.transactions import TableTransaction
from penstock.lake.unused import (
    KEEP_FILES_FOR,
    Removed,
    remove_dropped_tables,
    remove_unused_files,
)

with from_extra("lake"):
    import sqlalchemy
    from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot
    from pyiceberg.table.update.snapshot import ExpireSnapshots

log = logging.getLogger(__name__)

KEEP_SNAPSHOTS_FOR = timedelta(days=5)
MAX_SNAPSHOTS = 100
#: a property of a table: after each so many commits its pipeline does the upkeep; 0 is never
EVERY = "penstock.upkeep-every"
_EVERY = 25
#: unused files are looked for in each so many rounds of upkeep: the whole folder is listed
_ROUNDS = 10
_CURSORS = sqlalchemy.text(
    "select p.pipeline || '.' || p.processor, s.cursor #>> '{}' from penstock.processors p"
    " cross join lateral penstock.latest_processor_progress(p.pipeline, p.processor) s"
    " where p.retired_at is null and jsonb_typeof(s.cursor) = 'number'"
)


@dataclass(frozen=True)
class Maintained:
    """What upkeep did to a table."""

    table: str
    #: how many data files were replaced by how many
    compacted_files: int = 0
    written_files: int = 0
    expired_snapshots: int = 0
    #: the sources, `pipeline.processor`, for which older snapshots are kept
    held_back_by: tuple[str, ...] = ()
    removed_files: int = 0
    removed_bytes: int = 0
    #: files that no snapshot names, and that are not old enough
    unused_files: int = 0


def maintain(
    catalog: StoreCatalog,
    name: str,
    *,
    small_files: int = SMALL_FILES,
    keep_snapshots_for: timedelta = KEEP_SNAPSHOTS_FOR,
    max_snapshots: int = MAX_SNAPSHOTS,
    keep_files_for: timedelta | None = KEEP_FILES_FOR,
    progress: Callable[[str], None] = lambda doing: None,
) -> Maintained:
    """Do all upkeep of a table. `keep_files_for=None` leaves files that nobody needs."""
    with usable(catalog.properties):
        check_table(catalog, name)
        progress(f"{name}: compacting files")
        compacted = compact(
            catalog, name, small_files=small_files,
            progress=lambda done, of: progress(f"{name}: compacting files, {done} of {of}"),
        )  # fmt: skip
        progress(f"{name}: expiring snapshots")
        expired, holders = expire_snapshots(catalog, name, keep_snapshots_for, max_snapshots)
        removed = Removed()
        if keep_files_for is not None:
            progress(f"{name}: looking for unused files")
            removed = remove_unused_files(catalog, name, keep_files_for)
    return _maintained(name, compacted, expired, holders, removed)


def maintain_all(
    catalog: StoreCatalog,
    *,
    keep_snapshots_for: timedelta = KEEP_SNAPSHOTS_FOR,
    keep_files_for: timedelta = KEEP_FILES_FOR,
    progress: Callable[[str], None] = lambda doing: None,
) -> Iterator[Maintained]:
    """Do the upkeep of each table, and remove what tables that were dropped have left."""
    for name in table_names(catalog):
        yield maintain(
            catalog, name, keep_snapshots_for=keep_snapshots_for, keep_files_for=keep_files_for,
            progress=progress,
        )  # fmt: skip
    progress("looking for dropped tables")
    with usable(catalog.properties):
        for folder, removed in remove_dropped_tables(catalog, keep_files_for).items():
            yield _maintained(f"{folder} (dropped)", Compacted(), 0, (), removed)


def maintain_when_due(
    catalog: StoreCatalog, table: Table, max_snapshots: int = MAX_SNAPSHOTS
) -> Maintained | None:
    """Do the upkeep of a table after each so many of its snapshots. What fails is logged."""
    name = ".".join(table.name())
    try:
        every = _every(table)
        newest = table.current_snapshot()
        number = (newest.sequence_number or 0) if newest is not None else 0
        if not every or not number or number % every:
            return None
        if number % (every * _ROUNDS):
            return maintain(catalog, name, max_snapshots=max_snapshots, keep_files_for=None)
        with usable(catalog.properties):
            remove_dropped_tables(catalog)
        return maintain(catalog, name, max_snapshots=max_snapshots)
    except Exception as error:  # the step has been committed
        log.warning("the upkeep of %s is left for later: %s", name, first_line(error))
        return None


def _every(table: Table) -> int:
    text = table.metadata.properties.get(EVERY, str(_EVERY))
    if not text.isdecimal():
        raise ValidationError(EVERY, text, "a number of commits; 0 is never")
    return int(text)


def check_table(catalog: StoreCatalog, name: str) -> None:
    """Raise if there is no such table."""
    try:
        catalog.load_table(name)
    except NoSuchTableError:
        known = ", ".join(table_names(catalog)) or "none"
        raise WrongTable(name, f"does not exist; there are {known}") from None


def _maintained(
    name: str, compacted: Compacted, expired: int, holders: tuple[str, ...], removed: Removed
) -> Maintained:
    return Maintained(
        name, compacted.replaced, compacted.written, expired, holders,
        removed.files, removed.size_in_bytes, removed.kept,
    )  # fmt: skip


# Fewer snapshots


def expire_snapshots(
    catalog: StoreCatalog,
    name: str,
    keep_for: timedelta = KEEP_SNAPSHOTS_FOR,
    most: int = MAX_SNAPSHOTS,
) -> tuple[int, tuple[str, ...]]:
    """Expire snapshots that are older, and the oldest of too many.

    Return how many, and the sources for which some of these are kept.
    """
    for _ in range(ATTEMPTS):
        table = catalog.load_table(name)
        dated = datetime.now(UTC) - keep_for
        going, holders = _without_needed(_old(table, dated, most), _cursors(catalog))
        if not going:
            return 0, holders
        try:
            update = ExpireSnapshots(TableTransaction(table, autocommit=True))
            update.by_ids([one.snapshot_id for one in going]).commit()
            return len(going), holders
        except CommitFailedException:  # a step was quicker
            continue
    raise TableChanged(name, ATTEMPTS)


def _old(table: Table, before: datetime, most: int) -> list[Snapshot]:
    """Return the snapshots that are old or too many, and that no branch or tag names."""
    newest = sorted(table.snapshots(), key=lambda one: one.sequence_number or 0, reverse=True)
    named = {one.snapshot_id for one in table.metadata.refs.values()}
    return [
        one
        for number, one in enumerate(newest)
        if one.snapshot_id not in named
        and (number >= most or one.timestamp_ms < before.timestamp() * 1000)
    ]


def _without_needed(
    going: list[Snapshot], cursors: dict[str, str]
) -> tuple[list[Snapshot], tuple[str, ...]]:
    """Return the snapshots that no source has yet to read, and the sources that need others."""
    numbers = {str(one.snapshot_id): one.sequence_number or 0 for one in going}
    holders = {who: numbers[cursor] for who, cursor in cursors.items() if cursor in numbers}
    if not holders:
        return going, ()
    first = min(holders.values())
    return [one for one in going if (one.sequence_number or 0) < first], tuple(sorted(holders))


def _cursors(catalog: StoreCatalog) -> dict[str, str]:
    """Return the cursors of sources that could be snapshots, by processor.

    Which table a source reads is not recorded, and need not be: no two snapshots have the same id.
    """
    exists = sqlalchemy.text("select to_regclass('penstock.processors') is not null")
    with catalog.engine.connect() as connection:
        if not connection.execute(exists).scalar():
            return {}
        return {str(who): str(cursor) for who, cursor in connection.execute(_CURSORS)}
