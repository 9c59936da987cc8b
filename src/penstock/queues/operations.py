"""The operations on queues: read the record at an offset, open a session, store an offset.

A queue is a stream, and records are offered with the log's own operations. What a session runs
after it was opened is in `session_state.py`. `sql/penstock/20_sessions.sql` keeps the offsets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from penstock.database.operation import ArchiveRead, Operation, Row, call
from penstock.database.waiters import of_stream
from penstock.errors import UndecodableRecord, ValidationError, first_line
from penstock.log.context import LogContext, is_whole
from penstock.message import Message, check_text
from penstock.message.serializer import JsonSerializer, encode_object
from penstock.queues.record import ConsumedRecord, Record, record_of

Result = TypeVar("Result")

_OLDEST = (
    "select id, stream_name, type, position, global_position, data, metadata, time"
    " from penstock.get_stream_messages(%s, %s, 1)"
)
_OLDEST_IN_MESSAGE_DB = (
    "select id, stream_name, type, position, global_position, data, metadata, time"
    " from message_store.get_stream_messages(%s, %s, 1)"
)


class SessionId(NamedTuple):
    """A session: its queue's stream, its consumer id, and its number among that id's sessions."""

    stream_name: str
    consumer_id: str
    epoch: int


def stream_of(name: str) -> str:
    """Return the name of a queue's stream."""
    return f"queue-{check_text('name', name)}"


def queue_of(stream_name: str) -> str:
    """Return the name of the queue that a stream holds."""
    return stream_name.removeprefix("queue-")


def check_offset(name: str, value: object) -> int:
    """Return a checked offset: a whole number of 0 or more, below the highest bigint."""
    if not is_whole(value) or value < 0 or not is_whole(value + 1):
        raise ValidationError(name, value, "an offset: a whole number of 0 or more")
    return value


def message_of(context: LogContext, record: Record) -> Message:
    """Return the message of a record. Refuses a value that JSON would change, such as a tuple.

    A serializer of your own may change values as it likes.
    """
    message = record.message()
    if type(context.serializer) is JsonSerializer:
        data = {"value": record.value}
        text = encode_object(context.serializer, message.type, "data", data)
        if context.serializer.decode(message.type, text) != data:
            raise ValidationError("value", record.value, "a value that JSON does not change")
    return message


def fetch_at(
    context: LogContext, stream_name: str, offset: int
) -> Operation[ConsumedRecord | None]:
    """Read the record at an offset; None if there is none."""
    check_offset("offset", offset)

    def decode(rows: list[Row]) -> ConsumedRecord | None:
        record = decoded(context, rows[0]) if rows else None
        if record is None or record.offset != offset:
            return None
        if isinstance(record, UndecodableRecord):
            raise record
        return record

    return _read_from(context, stream_name, offset, decode)


def oldest_from(
    context: LogContext, stream_name: str, offset: int
) -> Operation[ConsumedRecord | UndecodableRecord | None]:
    """Read the oldest record from an offset on, also from the archive."""
    return _read_from(
        context, stream_name, offset, lambda rows: decoded(context, rows[0]) if rows else None
    )


def _read_from(
    context: LogContext, stream_name: str, offset: int, decode: Callable[[list[Row]], Result]
) -> Operation[Result]:
    return call(
        "fetch_at",
        _OLDEST if context.edition.has_watermark else _OLDEST_IN_MESSAGE_DB,
        (stream_name, offset),
        decode,
        stream_name=stream_name,
        offset=offset,
    ).with_archive(ArchiveRead(stream_name, 1, context.lake_options))


def decoded(context: LogContext, row: Row) -> ConsumedRecord | UndecodableRecord:
    """Return the record in a row of a queue's stream, or why it cannot be decoded."""
    _, stream_name, _, offset, global_position, *_ = row
    try:
        (message,) = context.decode([row])
        return record_of(message, offset)  # whatever position an interceptor has given it
    except Exception as error:  # a serializer may raise anything
        reason = getattr(error, "reason", None) or first_line(error)
        undecodable = UndecodableRecord(stream_name, offset, global_position, reason)
        undecodable.__cause__ = error
        return undecodable


def open_session(
    context: LogContext, stream_name: str, consumer_id: str
) -> Operation[tuple[SessionId, int]]:
    """Open a session, and fence the one that is open under this consumer id.

    The result is the session, and the offset that it reads first.
    """
    context.require_penstock("a queue's consumer")
    check_text("consumer_id", consumer_id)
    return call(
        "open_session",
        "select epoch, next_offset from penstock.open_session(%s, %s)",
        (stream_name, consumer_id),
        lambda rows: (SessionId(stream_name, consumer_id, rows[0][0]), rows[0][1]),
        notifies=frozenset([of_stream(stream_name)]),  # a session that waits is fenced
        stream_name=stream_name,
        consumer_id=consumer_id,
    )


def commit_offset(
    context: LogContext, stream_name: str, consumer_id: str, next_offset: int
) -> Operation[None]:
    """Store a consumer's offset without a session."""
    context.require_penstock("a queue's consumer")
    check_text("consumer_id", consumer_id)
    check_offset("next_offset", next_offset)
    return call(
        "commit_offset",
        "select penstock.commit_offset(%s, %s, %s)",
        (stream_name, consumer_id, next_offset),
        lambda _: None,
        stream_name=stream_name,
        consumer_id=consumer_id,
    )
