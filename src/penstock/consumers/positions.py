"""Where a consumer's position is kept: in a stream, in a table, or in both.

A position is the global position of the last message that was handled; a consumer resumes after it.
A save succeeds only if the stored position is the one that was last seen. So if a second process
runs under the same consumer id, one of them gets `PositionConflict`.

| kept in | reading it | its history | needs |
|---|---|---|---|
| stream `{category}:position-{consumer_id}` | last message of the stream | all of it | Message DB |
| table `penstock.consumer_positions` | one row | none | Penstock's schema |
| both (hybrid) | the row, else the stream | every tenth save | Penstock's schema |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, cast
from uuid import UUID, uuid4

from penstock.database.operation import Operation, Row, call
from penstock.errors import InvalidPosition, ValidationError
from penstock.log import read, write
from penstock.log.context import LogContext, is_whole

HISTORY_INTERVAL = 10


@dataclass(frozen=True, slots=True)
class StoredPosition:
    """A position, as it was last loaded or saved."""

    position: int = 0
    #: what the next save expects: the version of the stream, or the position in the row
    seen: int | None = None
    saves: int = 0
    #: False if the consumer has never saved one
    exists: bool = True


NONE_YET = StoredPosition(exists=False)


class Positions(Protocol):
    """Builds the operations that load and save one consumer's position."""

    def load(self, context: LogContext) -> Operation[StoredPosition]:
        """Load the position."""

    def save(
        self, context: LogContext, stored: StoredPosition, position: int, *, durable: bool = True
    ) -> Operation[StoredPosition]:
        """Replace `stored` by `position`.

        A position that is saved alone need not be `durable`: if a crash of the server undoes it,
        messages are handled again.
        """


@dataclass(frozen=True, slots=True)
class StreamPositions:
    """Keeps the position in a stream, like Message DB's consumers."""

    category: str
    consumer_id: str

    @property
    def stream_name(self) -> str:
        """The position stream."""
        return f"{self.category}:position-{self.consumer_id}"

    def load(self, context: LogContext) -> Operation[StoredPosition]:
        """Read the last message of the position stream."""
        last = read.get_last_stream_message(context, self.stream_name)

        def decode(rows: list[Row]) -> StoredPosition:
            message = last.decode(rows)
            if message is None:
                return StoredPosition(0, -1, exists=False)
            position = message.data.get("position")
            if not is_whole(position) or position < 0:
                raise InvalidPosition(message.stream_name, message.position, message.data)
            return StoredPosition(position, message.position)

        return Operation("load_position", last.statements, decode, last.facts)

    def save(
        self, context: LogContext, stored: StoredPosition, position: int, *, durable: bool = True
    ) -> Operation[StoredPosition]:
        """Write the position to the stream, if that still has the expected version."""
        written = self.record(context, position, expected_version=stored.seen)
        return Operation(
            "save_position",
            written.statements,
            lambda rows: StoredPosition(position, written.decode(rows), stored.saves + 1),
            written.facts,
            written.notifies,
        )

    def record(
        self, context: LogContext, position: int, expected_version: int | None = None
    ) -> Operation[int]:
        """Write a position to the stream."""
        return write.write_message(
            context,
            self.stream_name,
            "PositionUpdated",
            {"position": position},
            expected_version=expected_version,
        )


@dataclass(frozen=True, slots=True)
class TablePositions:
    """Keeps the position in one row of `penstock.consumer_positions`."""

    category: str
    consumer_id: str
    #: the first half of every `save_id`, by which the server knows who has saved a position
    writer: UUID = field(default_factory=uuid4, repr=False, compare=False)

    @property
    def key(self) -> str:
        """The row's key."""
        return f"{self.category}-{self.consumer_id}"

    def load(self, context: LogContext) -> Operation[StoredPosition]:
        """Read the row."""
        check_edition(context)
        return call(
            "load_position",
            "select p.position from penstock.latest_position(%s) p where p.position is not null",
            (self.key,),
            lambda rows: StoredPosition(rows[0][0], rows[0][0]) if rows else NONE_YET,
            consumer_id=self.key,
        )

    def save(
        self, context: LogContext, stored: StoredPosition, position: int, *, durable: bool = True
    ) -> Operation[StoredPosition]:
        """Update the row, if it still holds the expected position.

        The first save after a load is durable: what a crash leaves was written by this writer.
        """
        check_edition(context)
        save_id = UUID(bytes=self.writer.bytes[:8] + uuid4().bytes[8:])
        return call(
            "save_position",
            "select penstock.save_position(%s, %s, %s, %s, %s)",
            (self.key, position, stored.seen, save_id, durable or stored.saves == 0),
            lambda _: StoredPosition(position, position, stored.saves + 1),
            consumer_id=self.key,
        )


class HybridPositions(TablePositions):
    """Keeps the position in the table, and every tenth one in the stream too, as a history."""

    @property
    def _stream(self) -> StreamPositions:
        return StreamPositions(self.category, self.consumer_id)

    def load(self, context: LogContext) -> Operation[StoredPosition]:
        """Read the row, or the last message of the stream if there is no row."""
        check_edition(context)
        from_stream = self._stream.load(context)

        def decode(rows: list[Row]) -> StoredPosition:
            (in_table, *message) = rows[0]
            if in_table is not None:
                return StoredPosition(in_table, in_table)
            if message[0] is None:
                return NONE_YET
            return StoredPosition(from_stream.decode([tuple(message)]).position)

        return call(
            "load_position",
            "select p.position, m.*"
            " from (values (1)) as one"
            " left join lateral penstock.latest_position(%s) p on true"
            " left join lateral message_store.get_last_stream_message(%s) m on true",
            (self.key, self._stream.stream_name),
            decode,
            consumer_id=self.key,
        )

    def save(
        self, context: LogContext, stored: StoredPosition, position: int, *, durable: bool = True
    ) -> Operation[StoredPosition]:
        """Update the row, and every tenth time write to the stream in the same transaction."""
        if stored.saves % HISTORY_INTERVAL:
            return super().save(context, stored, position, durable=durable)
        saved = super().save(context, stored, position)
        history = self._stream.record(context, position)
        return Operation(
            saved.name,
            (*history.statements, *saved.statements),
            saved.decode,
            saved.facts,
            history.notifies,
        )


KINDS: dict[str, Callable[[str, str], Positions]] = {
    "stream": StreamPositions,
    "table": TablePositions,
    "hybrid": HybridPositions,
}


def positions_for(kind: Any, category: str, consumer_id: str) -> Positions:
    """Return the positions of a kind by name, or the caller's own object."""
    if isinstance(kind, str) and kind in KINDS:
        return KINDS[kind](category, consumer_id)
    if isinstance(kind, type) or not (hasattr(kind, "load") and hasattr(kind, "save")):
        raise ValidationError(
            "positions", kind, "'stream', 'table', 'hybrid' or a Positions object"
        )
    return cast(Positions, kind)


def check_edition(context: LogContext) -> None:
    """Refuse a genuine Message DB: it has no table for positions."""
    context.require_penstock("a position in a table (one in a stream works)")
