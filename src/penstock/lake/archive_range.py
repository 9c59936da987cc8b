"""A part of the archive: which messages, in which files, and which row groups can hold them.

Needs no pyiceberg, so that a task of Spark loads it quickly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.message import names

#: a row as the database returns it: of the type `message_store.message`
Row = tuple[Any, ...]


@dataclass(frozen=True)
class ArchivedRange:
    """A part of the archive: a stream, a category or `$all`, and the positions that are read."""

    location: str
    properties: Mapping[str, str] = field(hash=False)
    target: str
    #: the first position: in the stream if the target is one, else a global one
    first: int
    #: the last global position; None for no bound
    until: int | None
    #: only messages of one type, which are in these categories
    type: str | None = None
    categories: tuple[str, ...] | None = None

    def after(self, row: Row) -> ArchivedRange:
        """Return what follows a row."""
        return replace(self, first=(row[3] if self.stream_name else row[4]) + 1)

    @property
    def stream_name(self) -> str | None:
        """The stream, if the target is one."""
        return None if names.is_category(self.target) else self.target

    @property
    def category(self) -> str | None:
        """The category; None for `$all`."""
        return None if self.target == "$all" else names.category(self.target)

    @property
    def low(self) -> int:
        """The first global position that can be in the range."""
        return 0 if self.stream_name else self.first

    def may_be_in(self, file: ArchiveFile) -> bool:
        """Whether a file can hold messages of the range."""
        return (
            self.category in (None, file.category)
            and (self.categories is None or file.category in self.categories)
            and file.high >= self.low
            and (self.until is None or file.low <= self.until)
        )


@dataclass(frozen=True)
class ArchiveFile:
    """A data file of the archive: a part of one category, sorted by global position."""

    path: str
    category: str
    low: int
    high: int
    message_count: int


def row_groups(where: ArchivedRange, footer: pq.FileMetaData) -> Iterator[int]:
    """Yield the numbers of the row groups that can hold messages of the range."""
    column = footer.schema.to_arrow_schema().get_field_index
    position, stream = column("global_position"), column("stream_name")
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        places = group.column(position).statistics
        streams = group.column(stream).statistics
        if places is not None and (
            places.max < where.low or (where.until is not None and places.min > where.until)
        ):
            continue
        is_elsewhere = (
            where.stream_name is not None
            and streams is not None
            and streams.has_min_max
            and not streams.min <= where.stream_name <= streams.max
        )
        if not is_elsewhere:
            yield number


def matching(where: ArchivedRange, rows: pa.Table) -> pa.Table:
    """Return the rows that are in the range."""
    if where.stream_name is None:
        found = pc.greater_equal(rows.column("global_position"), where.first)
    else:
        found = pc.and_(
            pc.equal(rows.column("stream_name"), where.stream_name),
            pc.greater_equal(rows.column("position"), where.first),
        )
    if where.until is not None:
        found = pc.and_(found, pc.less_equal(rows.column("global_position"), where.until))
    if where.type is not None:
        found = pc.and_(found, pc.equal(rows.column("type"), where.type))
    # mostly they follow each other, and need not be copied
    first, count = max(0, pc.index(found, True).as_py()), pc.sum(found).as_py() or 0
    if pc.all(found.slice(first, count)).as_py():
        return rows.slice(first, count)
    return rows.filter(found)
