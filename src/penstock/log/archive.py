"""Move old messages of a category to the archive, an Iceberg table.

A batch of messages is written to Parquet files, which are read back. Then one transaction deletes
the messages, records the segment, and makes the files part of the table: whatever fails, each
message is in exactly one place, and readers see it at every moment. The server compares a digest of
what it deletes with that of what the files hold. The rules are in `sql/penstock/23_archive.sql`.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg

from penstock.database.execute import execute
from penstock.database.operation import Operation, Row, call, only_value
from penstock.database.pool import connect
from penstock.errors import ArchiveRunning, NoWarehouse, ValidationError
from penstock.log import bloated_indexes
from penstock.log.context import LogContext, check_position
from penstock.log.freed_space import FreedSpace
from penstock.log.retention import Bounds, Keep, find_bounds
from penstock.log.write import check_category
from penstock.settings import Settings

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.lake.changes import TableChange

BATCH_SIZE = 50_000  # messages moved in one transaction
MAX_LOAD = 0.25
_LOCK = 1885693291  # class of the advisory locks of runs
_SEPARATOR, _NULL = "\x1f", "\x1e"


@dataclass(frozen=True, slots=True)
class Archived:
    """How many messages were moved to the archive, and in how many transactions."""

    moved: int
    segments: int
    #: the indexes of the log that were mostly empty, and were rebuilt
    rebuilt: tuple[str, ...] = ()


class Batch(NamedTuple):
    """The global positions of the next messages to move, and where to go on (None at the end)."""

    positions: list[int]
    walked_to: int | None


def archive(
    context: LogContext,
    category: str,
    keep: Keep,
    *,
    ignore_consumers: bool = False,
    progress: Callable[[int], None] = lambda moved: None,
    max_load: float = MAX_LOAD,
    batch_size: int = BATCH_SIZE,
    reindex: bool = True,
    reindexing: Callable[[str], None] = lambda index: None,
) -> Archived:
    """Move the messages of a category, all but those to keep, in batches.

    `progress` is called after each batch with the number of messages moved so far. `max_load` is
    the share of the time that it works; between batches it pauses, for the sake of writers. At the
    end indexes that are mostly empty are rebuilt, and `reindexing` is called with the name of each.
    """
    settings = context.settings
    check_category(category)
    check_position("batch_size", batch_size, 1)
    if isinstance(max_load, bool) or not isinstance(max_load, int | float) or not 0 < max_load <= 1:
        raise ValidationError("max_load", max_load, "above 0 and at most 1")
    if category == "$all":
        raise ValidationError("category", category, "one category")
    if settings.warehouse is None:
        raise NoWarehouse(settings.where())
    context.require_penstock("the archive")
    moved = segments = 0
    with connect(settings) as connection, _only_run(connection, category):
        bounds = execute(connection, find_bounds(context, category, keep, ignore_consumers))
        if not ignore_consumers:
            execute(connection, refuse_unread(category, bounds))
        mover = _Mover(settings, connection, category)
        interrupted = bloated_indexes.drop_unfinished(connection)
        freed = FreedSpace(connection, batch_size)
        walked_to: int | None = None
        while True:
            began = time.monotonic()
            batch = execute(connection, next_batch(category, bounds, walked_to, batch_size))
            if batch.positions:
                mover.move(batch.positions)
                moved, segments = moved + len(batch.positions), segments + 1
                freed.moved(len(batch.positions))
                progress(moved)
            walked_to = batch.walked_to
            if walked_to is None:
                break
            time.sleep((time.monotonic() - began) * (1 / max_load - 1))
        rebuilt: list[str] = []
        if reindex and (moved or interrupted):
            bloated = [
                one.name for one in bloated_indexes.index_sizes(connection) if one.is_bloated
            ]
            rebuilt = bloated_indexes.rebuild(connection, bloated, reindexing, max_load)
        if rebuilt:
            freed.vacuum()
        return Archived(moved, segments, tuple(rebuilt))


@contextmanager
def _only_run(connection: psycopg.Connection[Any], category: str) -> Iterator[None]:
    """Refuse if another process is archiving the category. A killed one has ended by that."""
    key = (_LOCK, category)
    lock = call("lock_archive", "select pg_try_advisory_lock(%s, hashtext(%s))", key, only_value)
    if not execute(connection, lock):
        raise ArchiveRunning(category)
    try:
        yield
    finally:
        # the server notices the end of a connection later, when the next run may have begun
        with suppress(psycopg.Error):
            connection.execute("select pg_advisory_unlock(%s, hashtext(%s))", key)


class _Mover:
    """Moves batches of one category."""

    def __init__(
        self, settings: Settings, connection: psycopg.Connection[Any], category: str
    ) -> None:
        # only those who archive need the extra `lake`
        from penstock.lake import archive_table
        from penstock.lake.create import check_warehouse
        from penstock.lake.store_catalog import open_catalog

        self._connection = connection
        # whatever the role's default is: a move must see what was declared before it got its lock
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        self._category = category
        self._catalog = open_catalog(settings).on(connection)
        check_warehouse(self._catalog)
        self._table = archive_table.prepare(self._catalog)

    def move(self, positions: Sequence[int]) -> None:
        """Write the messages to files, read those back, and commit the move."""
        rows = execute(self._connection, messages_at(positions))
        change, digest = self._written(rows)
        try:
            with self._connection.transaction():
                execute(self._connection, move_to_archive(self._category, positions, digest))
                change.commit()
        except BaseException:
            change.discard()
            raise
        self._table = change.table
        change.committed()

    def _written(self, rows: list[Row]) -> tuple[TableChange, str]:
        from penstock.lake import archive_table
        from penstock.lake.changes import TableChange
        from penstock.lake.files import file_writer

        files = list(file_writer(self._table).write(archive_table.batches(self._category, rows)))
        change = TableChange(
            self._catalog,
            archive_table.declared(),
            self._table,
            files,
            summary={"penstock.category": self._category},
        )
        change.stage()
        return change, digest_of(archive_table.read_back(self._table, files))


def digest_of(messages: pa.Table) -> str:
    """Return the digest of messages, as `penstock.message_digest` computes it in the database."""
    from penstock.lake.archive_table import rows_of

    digests = (hashlib.md5(_text(row).encode()).hexdigest() for row in rows_of(messages))
    return hashlib.md5("".join(digests).encode()).hexdigest()


def _text(row: Row) -> str:
    global_position, stream_name, position, id, type, data, metadata, microseconds = row
    values = (
        str(global_position),
        id,
        stream_name,
        str(position),
        type,
        _NULL if data is None else data,
        _NULL if metadata is None else metadata,
        str(microseconds),
    )
    return _SEPARATOR.join(values)


def refuse_unread(category: str, bounds: Bounds) -> Operation[None]:
    """Raise `UnreadMessages` if a reader has not read messages that would be moved."""
    return call(
        "refuse_unread",
        "select penstock.refuse_unread(%s, %s, %s, %s)",
        (category, bounds.global_bound, bounds.keep_since, bounds.position_streams),
        lambda rows: None,
        category_name=category,
    )


def next_batch(
    category: str, bounds: Bounds, walked_to: int | None, batch_size: int
) -> Operation[Batch]:
    """Choose the next messages to move, after the position that the last batch walked to."""
    return call(
        "messages_to_archive",
        "select positions, walked_to from penstock.messages_to_archive(%s, %s, %s, %s, %s, %s)",
        (
            category,
            bounds.global_bound,
            bounds.keep_since,
            bounds.position_streams,
            walked_to,
            batch_size,
        ),
        lambda rows: Batch(*rows[0]),
        category_name=category,
    )


def messages_at(positions: Sequence[int]) -> Operation[list[Row]]:
    """Read messages by their global positions, in order, in the columns of the archive."""
    return call(
        "messages_to_archive",
        "select global_position, stream_name, position, id::text, type, data::text, metadata::text,"
        " time from message_store.messages where global_position = any (%s::bigint[])"
        " order by global_position",
        (_array(positions),),
        lambda rows: rows,
    )


def move_to_archive(category: str, positions: Sequence[int], digest: str) -> Operation[None]:
    """Delete messages and record the segment, if they are those of the digest."""
    return call(
        "archive",
        "select penstock.move_to_archive(%s, %s::bigint[], %s,"
        " (select n.nspname from pg_class c join pg_namespace n on n.oid = c.relnamespace"
        " where c.oid = to_regclass('iceberg_tables')))",
        (category, _array(positions), digest),
        lambda rows: None,
        category_name=category,
    )


def _array(positions: Sequence[int]) -> str:
    """Return an array as PostgreSQL reads it: psycopg takes its time to adapt so many numbers."""
    return f"{{{','.join(map(str, positions))}}}"
