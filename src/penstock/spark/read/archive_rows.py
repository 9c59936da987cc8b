"""Where a read meets the archive: old messages that are in files, and not in the database.

A message moves from the table to the archive in one transaction, and never back. So a read that
takes the rows of the table first, and the archive's location in a later snapshot, misses none, and
one that takes both in the same snapshot finds each message once. `archive_location` is SQL for the
location. It is a volatile function: beside the rows of one statement, it reads a later snapshot.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from penstock.database.operation import Operation, call, only_value
from penstock.lake.archive_batches import files_of, read_batches
from penstock.lake.archive_range import ArchivedRange, ArchiveFile
from penstock.spark.target import Target


def archive_location(target: Target, after: int, until: int) -> sql.Composed:
    """Return SQL for the location of the archive, null if a range does not reach into it."""
    if target.attributes:
        found = sql.SQL("(select penstock.archive_location() where exists (select {}))")
        return found.format(_archived_matches(target, after, until))
    first, last = (after + 1, None) if target.stream else (max(after, 0) + 1, until)
    mark = sql.SQL("(select a.type::text from penstock.archive_mark({}, {}, {}) a)")
    return mark.format(target.name, first, last)


def find_archive(target: Target, after: int, until: int) -> Operation[str | None]:
    """Return the location of the archive if a range reaches into it."""
    query = sql.SQL("select {}").format(archive_location(target, after, until))
    return call("find_archive", query, None, only_value)


def archived_matches(target: Target, after: int, until: int) -> sql.Composed:
    """Return a query for the positions of archived messages with the attributes of a target."""
    query = sql.SQL("select array(select m.global_position {})")
    return query.format(_archived_matches(target, after, until))


def _archived_matches(target: Target, after: int, until: int) -> sql.Composed:
    """Return `from … where …` for those that the index has, and the table has not."""
    in_table = sql.SQL(
        " and (select t.global_position from message_store.messages t"
        " where t.global_position = m.global_position) is null"
    )
    return target.positions(after, until) + in_table


def archived_range(target: Target, after: int, until: int, location: str) -> ArchivedRange:
    """Return the part of the archive that a range has, but for the last position of a stream."""
    last = None if target.stream else until
    return ArchivedRange(location, target.lake_options, target.name, after + 1, last)


def archived_messages(
    target: Target,
    after: int,
    until: int,
    location: str,
    columns: Sequence[str],
    files: Sequence[ArchiveFile] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the archived messages of a range, file by file, of the types of the target.

    `files` are those of the location, if they are known.
    """
    where = archived_range(target, after, until, location)
    wanted = [*columns, *(["type"] if target.types else [])]
    chosen = files_of(where) if files is None else files
    if target.attributes:
        chosen = [one for one in chosen if _within(target.archived, one)]
    for batch in read_batches(where, chosen, wanted):
        found = batch
        if target.attributes:
            positions = pa.array(target.archived, pa.int64())
            found = found.filter(pc.is_in(found.column("global_position"), positions))
        if target.stream:
            found = found.filter(pc.less_equal(found.column("position"), until))
        if target.types:
            found = found.filter(pc.is_in(found.column("type"), pa.array(target.types)))
        if found.num_rows:
            yield found


def moved_since(
    target: Target, after: int, until: int, location: str, earlier: str
) -> tuple[tuple[ArchiveFile, ...], Any]:
    """Return the files that the archive did not have at an earlier location, within a range.

    A compaction writes old messages to new files. So the second result are the positions of the
    messages which the archive had already, in files that are no longer part of it.
    """
    if location == earlier:
        return (), np.empty(0, np.int64)
    now, then = (files_of(archived_range(target, after, until, one)) for one in (location, earlier))
    axis = "position" if target.stream else "global_position"
    gone = [one for one in then if one not in now]
    known = [
        batch.column(axis).to_numpy()
        for batch in archived_messages(target, after, until, earlier, [axis], gone)
    ]
    new = tuple(one for one in now if one not in then)
    return new, np.concatenate([np.empty(0, np.int64), *known])


def _within(positions: Sequence[int], file: ArchiveFile) -> bool:
    """Whether one of the positions, which are in order, can be in a file."""
    return bisect_left(positions, file.low) < bisect_right(positions, file.high)


def archived_positions(target: Target, after: int, until: int, location: str, most: int) -> Any:
    """Return the first positions of the archived messages of a range, at most so many, in order."""
    axis = "position" if target.stream else "global_position"
    files = sorted(
        files_of(archived_range(target, after, until, location)), key=lambda one: one.low
    )
    found = np.empty(0, np.int64)
    for file in files:
        if not target.stream and len(found) >= most and file.low > found[most - 1]:
            break
        parts, count = [found], len(found)
        for batch in archived_messages(target, after, until, location, [axis], [file]):
            parts.append(batch.column(axis).to_numpy())
            count += batch.num_rows
            if count - len(found) >= most:  # a file is in order
                break
        found = np.unique(np.concatenate(parts))[:most]
    return found


def merged_positions(positions: Sequence[int], archived: Any, most: int) -> list[int]:
    """Return the positions of both places in order, each once, at most so many."""
    found = np.union1d(np.asarray(positions, np.int64), archived)[:most]
    return [int(one) for one in found]
