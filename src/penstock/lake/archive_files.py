"""Messages of the archive, read from its files in the order of their positions.

The location of the table's metadata, which comes with a mark from the database, says which files
the archive consisted of at that moment. Their statistics tell which of them, and which row groups,
can hold messages of a range; only those are opened. Row groups are read one after the other, so a
range of any length needs little memory. Files overlap where a stream's last message stayed in the
table and was archived later; they are merged.

What was read last is kept: the files of recent locations, and row groups, since the pages of a
reader follow each other.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from threading import Lock

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.errors import ArchiveUnreachable, first_line
from penstock.extras import from_extra
from penstock.lake.archive_range import ArchivedRange, ArchiveFile, Row, matching, row_groups

with from_extra("lake"):
    from pyiceberg.conversions import from_bytes
    from pyiceberg.io import FileIO, load_file_io
    from pyiceberg.table import StaticTable
    from pyiceberg.types import LongType

_COLUMNS = ["id", "stream_name", "type", "position", "global_position", "data", "metadata", "time"]
_ROWS_AT_ONCE = 500


def read_range(where: ArchivedRange, most: int | None) -> list[Row]:
    """Return the first messages of a range, in order, at most `most`; or `ArchiveUnreachable`."""
    try:
        return list(islice(iterate(where), most))
    except OSError as error:
        raise ArchiveUnreachable(where.location, first_line(error)) from None


def read_positions(
    location: str, properties: Mapping[str, str], wanted: Mapping[int, str]
) -> dict[int, Row]:
    """Return the messages at global positions, with their types; or `ArchiveUnreachable`."""
    sign_in = tuple(sorted(properties.items()))
    pending = sorted(wanted)
    found: dict[int, Row] = {}
    try:
        for file in archive_files(location, sign_in):
            if _within(pending, file.low, file.high):
                found |= _rows_at(file, sign_in, pending, wanted)
                pending = [one for one in pending if one not in found]
    except OSError as error:
        raise ArchiveUnreachable(location, first_line(error)) from None
    if pending:
        raise ArchiveUnreachable(location, f"it has no message at global position {pending[0]}")
    return found


def _rows_at(
    file: ArchiveFile,
    properties: tuple[tuple[str, str], ...],
    positions: list[int],
    wanted: Mapping[int, str],
) -> dict[int, Row]:
    """Return those of the messages that a file has. Row groups without their types are not read."""
    found: dict[int, Row] = {}
    footer = _footer(file.path, properties)
    column = footer.schema.to_arrow_schema().get_field_index
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        places = group.column(column("global_position")).statistics
        types = group.column(column("type")).statistics
        here = positions if places is None else _within(positions, places.min, places.max)
        if types is not None and types.has_min_max:
            here = [one for one in here if types.min <= wanted[one] <= types.max]
        if here:
            rows = _row_group(file.path, properties, number)
            chosen = pc.is_in(rows.column("global_position"), pa.array(here, pa.int64()))
            found |= {row[4]: row for row in _tuples(rows.filter(chosen))}
    return found


def _within(positions: list[int], low: int, high: int) -> list[int]:
    """Return those of the positions, which are in order, that are between two."""
    return positions[bisect_left(positions, low) : bisect_right(positions, high)]


def read_type(
    location: str,
    properties: Mapping[str, str],
    type: str,
    categories: Collection[str],
    after: int,
    most: int,
) -> list[Row]:
    """Return the first messages of a type after a global position, of these categories."""
    where = ArchivedRange(location, properties, "$all", after + 1, None, type, tuple(categories))
    return read_range(where, most)


def iterate(where: ArchivedRange) -> Iterator[Row]:
    """Yield the messages of a range in order. The next file is opened when its first one is due."""
    pending = sorted(files_of(where), key=lambda one: one.low, reverse=True)
    open_files: list[tuple[int, int, Row, Iterator[Row]]] = []
    while pending or open_files:
        while pending and (not open_files or pending[-1].low <= open_files[0][0]):
            _advance(open_files, _rows_of(where, pending.pop()), len(pending))
        if open_files:
            _, number, row, rows = heapq.heappop(open_files)
            yield row
            _advance(open_files, rows, number)


def _advance(
    open_files: list[tuple[int, int, Row, Iterator[Row]]], rows: Iterator[Row], number: int
) -> None:
    row = next(rows, None)
    if row is not None:
        heapq.heappush(open_files, (row[4], number, row, rows))


def files_of(where: ArchivedRange) -> list[ArchiveFile]:
    """Return the files that can hold messages of a range."""
    return [
        one
        for one in archive_files(where.location, tuple(sorted(where.properties.items())))
        if where.may_be_in(one)
    ]


@lru_cache(maxsize=4)
def archive_files(location: str, properties: tuple[tuple[str, str], ...]) -> list[ArchiveFile]:
    """Return the files of the archive as it is at a location."""
    table = StaticTable.from_metadata(location, dict(properties))
    schema = table.schema()
    column = schema.find_field("global_position").field_id
    return [
        ArchiveFile(
            file.file_path,
            str(file.partition[0]),
            int(from_bytes(LongType(), file.lower_bounds[column])),
            int(from_bytes(LongType(), file.upper_bounds[column])),
            file.record_count,
        )
        for file in (task.file for task in table.scan().plan_files())
    ]


def _rows_of(where: ArchivedRange, file: ArchiveFile) -> Iterator[Row]:
    """Yield the messages of a file that are in the range."""
    properties = tuple(sorted(where.properties.items()))
    for number in row_groups(where, _footer(file.path, properties)):
        yield from _tuples(matching(where, _row_group(file.path, properties, number)))


def _tuples(rows: pa.Table) -> Iterator[Row]:
    """Yield the rows. A reader seldom takes all of a row group, so few are converted at once."""
    for some in rows.select(_COLUMNS).to_batches(_ROWS_AT_ONCE):
        yield from zip(*(column.to_pylist() for column in some.columns), strict=True)


@lru_cache(maxsize=256)
def _footer(path: str, properties: tuple[tuple[str, str], ...]) -> pq.FileMetaData:
    with _io(path, properties).new_input(path).open() as file:
        return pq.read_metadata(file)


def _row_group(path: str, properties: tuple[tuple[str, str], ...], number: int) -> pa.Table:
    """Return a row group, from memory if it was read lately."""
    rows = kept_row_groups.get((path, number))
    if rows is None:
        rows = _read_row_group(path, properties, number)
        kept_row_groups.add((path, number), rows)
    return rows


class _KeptRowGroups:
    """The row groups that were used last, up to a size: pages of a reader follow each other.

    A claim of a partitioned group has messages of many row groups, and so has the next.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._tables: OrderedDict[tuple[str, int], pa.Table] = OrderedDict()
        self._lock = Lock()

    def get(self, key: tuple[str, int]) -> pa.Table | None:
        """Return a row group, if it is kept."""
        with self._lock:
            if key in self._tables:
                self._tables.move_to_end(key)
            return self._tables.get(key)

    def clear(self) -> None:
        """Keep none."""
        with self._lock:
            self._tables.clear()
            self._bytes = 0

    def add(self, key: tuple[str, int], rows: pa.Table) -> None:
        """Keep a row group, and those that were used last before it."""
        with self._lock:
            if key not in self._tables:
                self._tables[key] = rows
                self._bytes += rows.nbytes
            while self._bytes > self._most_bytes and len(self._tables) > 1:
                _, oldest = self._tables.popitem(last=False)
                self._bytes -= oldest.nbytes


kept_row_groups = _KeptRowGroups(64 * 1024 * 1024)


def _read_row_group(path: str, properties: tuple[tuple[str, str], ...], number: int) -> pa.Table:
    """Read a row group, with times as the database returns them: UTC, without a zone."""
    with _io(path, properties).new_input(path).open() as file:
        rows = pq.ParquetFile(file).read_row_group(number, _COLUMNS)
    times = rows.column("time").cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))
    return rows.set_column(rows.schema.get_field_index("time"), "time", times)


def _io(path: str, properties: tuple[tuple[str, str], ...]) -> FileIO:
    return load_file_io(dict(properties), path)
