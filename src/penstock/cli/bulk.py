"""Writing many messages from JSON lines.

Messages are written in batches, one transaction each: one long transaction would hold back every
reader of the log. A file is checked completely before anything is written; a pipe cannot be. If
writing stops early, the error message reports which lines were written. The batches are the same on
every run, so lines that have ids can be written again.
"""

from __future__ import annotations

import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from os import fstat
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from penstock import Message, PenstockError, Store
from penstock.cli.printing import TerminalProgress, note
from penstock.errors import DatabaseUnreachable, ValidationError
from penstock.log.write import check_stream_name
from penstock.message import as_uuid, new_id

LINES_PER_BATCH = 1000
BYTES_PER_BATCH = 8_000_000


class Line(msgspec.Struct, forbid_unknown_fields=True):
    """The fields of a line. Those that only `penstock read --json` writes are ignored."""

    type: str
    data: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    id: str | None = None
    stream_name: Any = None
    position: Any = None
    global_position: Any = None
    time: Any = None


class Numbered(NamedTuple):
    """A message, its stream, and the number and length of its line."""

    line: int
    size: int
    stream_name: str
    message: Message


class ImportStopped(PenstockError):
    """A line is not a valid message, or writing stopped before the last line."""

    reason: str
    template = "{reason}"


@dataclass
class Import:
    """An import into one stream or the streams that lines name, and its progress."""

    store: Store
    stream_name: str | None
    expected_version: int | None
    count: int = 0
    first: int = -1
    last: int = -1
    last_line: int = 0
    sending: list[Numbered] = field(default_factory=list)

    def write(self, batch: list[Numbered]) -> None:
        """Write one batch."""
        self.sending = batch
        expected = None
        if self.stream_name is not None and self.expected_version is not None:
            expected = {self.stream_name: self.expected_version}
        positions = self.store.write_many(
            [(one.stream_name, one.message) for one in batch], expected_versions=expected
        )
        if self.expected_version is not None:
            self.expected_version = positions[-1]
        self.first = self.first if self.count else positions[0]
        self.last = positions[-1]
        self.count += len(batch)
        self.last_line = batch[-1].line
        self.sending = []

    def so_far(self, *, in_doubt: bool) -> str:
        """Return which lines were written. `in_doubt`: the last batch may have been written too."""
        known = f"lines 1 to {self.last_line} were written" if self.count else "nothing was written"
        if in_doubt and self.sending:
            return f"{known}, and possibly those up to line {self.sending[-1].line}"
        return known


def opened(source: str) -> AbstractContextManager[BinaryIO]:
    """Open a file; `-` is stdin."""
    return nullcontext(sys.stdin.buffer) if source == "-" else Path(source).open("rb")


def write_lines(
    store: Store, stream_name: str | None, file: BinaryIO, expected_version: int | None
) -> Import:
    """Write all lines of a file, and return the finished import."""
    work = Import(store, stream_name, expected_version)
    columns = "{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with TerminalProgress(*columns) as progress:
        try:
            total = _checked(work, file, progress)
            task = progress.add_task("writing", total=total)
            messages = _messages(work, file) if total is not None else _valid_messages(work, file)
            for batch in _batches(messages):
                work.write(batch)
                progress.advance(task, len(batch))
        except PenstockError as error:
            in_doubt = isinstance(error, DatabaseUnreachable)
            raise ImportStopped(f"{error}; {work.so_far(in_doubt=in_doubt)}") from error
        except KeyboardInterrupt:
            progress.stop()
            note(f"interrupted: {work.so_far(in_doubt=True)}")
            raise
    return work


def _checked(work: Import, file: BinaryIO, progress: Progress) -> int | None:
    """Check a file and return its number of messages; None if it cannot be read twice."""
    if not _is_regular(file):
        return None
    start = file.tell()
    count = sum(1 for _ in progress.track(_valid_messages(work, file), description="checking"))
    file.seek(start)
    return count


def _valid_messages(work: Import, file: BinaryIO) -> Iterator[Numbered]:
    """Yield the messages. One that cannot be encoded raises `ImportStopped`."""
    for one in _messages(work, file):
        with _at_line(one.line):
            work.store.context.encode(one.stream_name, one.message)
        yield one


def _messages(work: Import, file: BinaryIO) -> Iterator[Numbered]:
    for number, text in enumerate(file, start=1):
        if not text.strip():
            continue
        with _at_line(number):
            line = msgspec.json.decode(text, type=Line)
            stream_name = work.stream_name or _stream_name(line)
            id = new_id() if line.id is None else as_uuid(line.id)
            message = Message(line.type, line.data, line.metadata, id=id)
        yield Numbered(number, len(text), stream_name, message)


def _stream_name(line: Line) -> str:
    if line.stream_name is None:
        raise ValidationError("stream_name", None, "in the line, or STREAM in the command")
    check_stream_name(line.stream_name)
    return str(line.stream_name)


def _batches(messages: Iterable[Numbered]) -> Iterator[list[Numbered]]:
    batch: list[Numbered] = []
    size = 0
    for one in messages:
        batch.append(one)
        size += one.size
        if len(batch) >= LINES_PER_BATCH or size >= BYTES_PER_BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


@contextmanager
def _at_line(number: int) -> Iterator[None]:
    """Add the line number to errors."""
    try:
        yield
    except UnicodeError:
        raise ImportStopped(f"line {number}: not valid UTF-8") from None
    except (PenstockError, msgspec.DecodeError) as error:
        raise ImportStopped(f"line {number}: {error}") from None


def _is_regular(file: BinaryIO) -> bool:
    """Whether the input can be read twice."""
    try:
        return stat.S_ISREG(fstat(file.fileno()).st_mode)
    except OSError:  # not a file, but a buffer in memory
        return False
