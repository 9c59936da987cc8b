"""The operations on queues: offer records, and read the one at an offset.

A queue is a stream, so both are the log's own functions. The operations of a consumer's session are
in `session_operations.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import LiteralString

from penstock.database.operation import Operation, Row, call
from penstock.errors import UndecodableRecord, ValidationError, first_line
from penstock.log import write
from penstock.log.context import LogContext, is_whole
from penstock.message import Message, check_text
from penstock.message.serializer import JsonSerializer, encode_object
from penstock.queues.record import ConsumedRecord, Record, record_of

_COLUMNS: LiteralString = (
    "select id, stream_name, type, position, global_position, data, metadata, time from "
)


@dataclass(frozen=True, slots=True)
class FetchedRecord:
    """What is at an offset: a record, or the error that says why it cannot be decoded."""

    offset: int
    record: ConsumedRecord | UndecodableRecord


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


def offer(context: LogContext, stream_name: str, record: Record) -> Operation[int]:
    """Add a record to a queue; the result is its offset."""
    message = _message(context, record)
    return write.write_message(
        context, stream_name, message.type, message.data, message.metadata, id=message.id
    )


def offer_many(
    context: LogContext, stream_name: str, records: Iterable[Record]
) -> Operation[list[int]]:
    """Add records to a queue, all or none; the result is their offsets."""
    messages = [_message(context, record) for record in records]
    return write.write_messages(context, stream_name, messages)


def _message(context: LogContext, record: Record) -> Message:
    """Return a record's message. Refuses a value that JSON would change, such as a tuple.

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

    def decode(rows: list[Row]) -> ConsumedRecord | None:
        fetched = fetched_record(context, rows[0]) if rows else None
        if fetched is None or fetched.offset != offset:
            return None
        if isinstance(fetched.record, UndecodableRecord):
            raise fetched.record
        return fetched.record

    return call(
        "fetch_at",
        _COLUMNS + "message_store.get_stream_messages(%s, %s, 1)",
        (stream_name, check_offset("offset", offset)),
        decode,
        stream_name=stream_name,
        offset=offset,
    )


def fetched_record(context: LogContext, row: Row) -> FetchedRecord:
    """Decode a row of a queue's stream."""
    stream_name, offset, global_position = row[1], row[3], row[4]
    try:
        (message,) = context.decode([row])
        return FetchedRecord(offset, record_of(message))
    except Exception as error:  # a serializer may raise anything
        reason = getattr(error, "reason", None) or first_line(error)
        undecodable = UndecodableRecord(stream_name, offset, global_position, reason)
        undecodable.__cause__ = error
        return FetchedRecord(offset, undecodable)
