"""Messages of the archive as Arrow batches, for long reads: file by file, in little memory.

Local files are read without pyiceberg, which a task of Spark would take a second to load. Which
files there are is in the table's metadata: see `archive_files`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from penstock.errors import ArchiveUnreachable, first_line
from penstock.lake.archive_range import ArchivedRange, ArchiveFile, matching, row_groups

#: rows of a batch; what it takes at most is bounded by a row group
BATCH_ROWS = 10_000
#: of the columns that are not text
TYPES = {
    "position": pa.int64(),
    "global_position": pa.int64(),
    "time": pa.timestamp("us", "UTC"),
}


def files_of(where: ArchivedRange) -> list[ArchiveFile]:
    """Return the files that can hold messages of a range, or raise `ArchiveUnreachable`."""
    from penstock.lake import archive_files

    with _readable(where.location):
        return archive_files.files_of(where)


def read_batches(
    where: ArchivedRange, files: Iterable[ArchiveFile], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a range that these files hold. Those of each file are in order."""
    compared = ["global_position", *(["stream_name", "position"] if where.stream_name else [])]
    wanted = list(dict.fromkeys([*columns, *compared]))
    for file in sorted(files, key=lambda one: one.low):
        with _readable(where.location), _open(file.path, where.properties) as opened:
            parquet = pq.ParquetFile(opened)
            groups = list(row_groups(where, parquet.metadata))
            for batch in parquet.iter_batches(BATCH_ROWS, row_groups=groups, columns=wanted):
                found = matching(where, batch)
                if found.num_rows:
                    yield found.cast(
                        pa.schema({one: TYPES.get(one, pa.string()) for one in wanted})
                    )


@contextmanager
def _readable(location: str) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowInvalid) as error:
        raise ArchiveUnreachable(location, first_line(error)) from None


def _open(path: str, properties: Mapping[str, str]) -> Any:
    if path.startswith("file:"):
        return fs.LocalFileSystem().open_input_file(urlparse(path).path)  # as pyiceberg does
    from pyiceberg.io import load_file_io

    return load_file_io(dict(properties), path).new_input(path).open()
