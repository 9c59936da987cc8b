"""A read that goes on in the archive: rows of the table, merged with rows of its files.

Messages only ever move from the table to the archive. So a read that takes the rows of the table
first, and the archive's location later, misses none; a message that is in both counts once. The SQL
function does that: its last row is a mark, with the location and the bounds of the read.

A page that is full ends at its last row, and the archive is read up to there. Filters are the
server's, so that a rule is written once.

Functions that find messages by their attributes return stubs of those that are archived (see
`sql/penstock/24_archived_attributes.sql`). The location is taken in a later statement, so that the
archive has all of them, and they are read by their positions.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any, LiteralString

import psycopg
from psycopg.rows import tuple_row

from penstock.database.operation import GLOBAL_POSITION, ArchiveRead, Row, Stubs
from penstock.loops.concurrency_async import run_in_thread

#: rows of the archive that are filtered in one round trip
_CHUNK = 5_000
_MATCHING = "select * from penstock.matching_archived(%s, %s::jsonb[], %s, %s, %s)"
_LOCATION = "select penstock.archive_location()"
_STREAM_NAME, _TYPE, _POSITION, _METADATA = 1, 2, 3, 6
_GLOBAL_POSITION = GLOBAL_POSITION


async def complete(
    connection: psycopg.AsyncConnection[Any], read: ArchiveRead | Stubs, rows: list[Row]
) -> list[Row]:
    """Return the rows of a read, with what the archive has of them."""
    if isinstance(read, Stubs):
        return await _completed(connection, read, rows)
    return await _continued(connection, read, rows)


async def _completed(
    connection: psycopg.AsyncConnection[Any], read: Stubs, rows: list[Row]
) -> list[Row]:
    """Return the rows with the archived messages in place of their stubs."""
    first = read.first_column
    wanted = {
        position: one[first + _TYPE]
        for one in rows
        if one[first] is None and (position := one[first + _GLOBAL_POSITION]) is not None
    }
    try:
        found = await _read_archived(connection, read, wanted)
    except Exception:
        if read.undo is not None:
            statement = read.undo(rows)
            with suppress(psycopg.Error):  # in a transaction that has failed
                await connection.execute(statement.sql, statement.arguments)
        raise
    return [
        (*one[:first], *found[position])
        if one[first] is None and (position := one[first + _GLOBAL_POSITION]) is not None
        else one
        for one in rows
    ]


async def _read_archived(
    connection: psycopg.AsyncConnection[Any], read: Stubs, wanted: dict[int, str]
) -> dict[int, Row]:
    from penstock.lake.archive_files import read_positions

    ((location,),) = await _fetched(connection, _LOCATION, ())
    return await run_in_thread(partial(read_positions, location, read.properties, wanted))


async def _continued(
    connection: psycopg.AsyncConnection[Any], read: ArchiveRead, rows: list[Row]
) -> list[Row]:
    """Return the rows of a page that ends with a mark, merged with those of the archive."""
    # only those who read history need the extra `lake`
    from penstock.lake.archive_files import read_range
    from penstock.lake.archive_range import ArchivedRange

    *found, mark = rows
    until = mark[_GLOBAL_POSITION]
    if read.most is not None and len(found) >= read.most:
        until = found[-1][_GLOBAL_POSITION]
    where = ArchivedRange(mark[_TYPE], read.properties, read.target, mark[_POSITION], until)
    archived: list[Row] = []
    is_filtered = read.correlation is not None or read.size is not None
    while read.most is None or len(archived) < read.most:
        limit = _CHUNK if is_filtered else read.most
        chunk = await run_in_thread(partial(read_range, where, limit))
        archived += await _matching(connection, read, chunk) if is_filtered and chunk else chunk
        if limit is None or len(chunk) < limit:
            break
        where = where.after(chunk[-1])
    if read.only_last:
        return [one for one in archived if read.type in (None, one[_TYPE])][-1:]
    return merged(found, archived, read.most)


def merged(found: Iterable[Row], archived: Iterable[Row], most: int | None) -> list[Row]:
    """Return the rows of both places in order, each message once, at most `most`."""
    rows = {one[_GLOBAL_POSITION]: one for part in (archived, found) for one in part}
    return [rows[position] for position in sorted(rows)][:most]


async def _matching(
    connection: psycopg.AsyncConnection[Any], read: ArchiveRead, rows: list[Row]
) -> list[Row]:
    arguments = (
        [one[_STREAM_NAME] for one in rows],
        [one[_METADATA] for one in rows],
        read.correlation,
        read.member,
        read.size,
    )
    return [rows[number - 1] for (number,) in await _fetched(connection, _MATCHING, arguments)]


async def _fetched(
    connection: psycopg.AsyncConnection[Any], sql: LiteralString, arguments: tuple[Any, ...]
) -> list[Row]:
    """Return the rows as tuples, whatever the connection makes of rows."""
    cursor = psycopg.AsyncCursor(connection, row_factory=tuple_row)
    await cursor.execute(sql, arguments)
    return await cursor.fetchall()
