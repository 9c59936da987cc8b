"""The operations on queues and sessions: each is one call of one SQL function.

What a session's calls mean is in `session_state.py`; what keeps it true is in
`sql/penstock/20_sessions.sql`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, LiteralString

from penstock.database.operation import Operation, Row, call, only_value
from penstock.errors import UndecodableRecord, ValidationError, first_line
from penstock.log import write
from penstock.log.context import LogContext, is_whole
from penstock.message import Message, check_text
from penstock.message.serializer import JsonSerializer, encode_object
from penstock.queues.record import ConsumedRecord, Record, consumed

_COLUMNS: LiteralString = (
    "select id, stream_name, type, position, global_position, data, metadata, time from "
)


@dataclass(frozen=True, slots=True)
class SessionId:
    """A session: whose it is, and which of all that were opened under this consumer id."""

    stream_name: str
    consumer_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Opened:
    """A session that was just opened, and the offset to go on from."""

    id: SessionId
    next_offset: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """What stands at an offset: a record, or the reason why it cannot be read as one."""

    offset: int
    record: ConsumedRecord | UndecodableRecord


@dataclass(frozen=True, slots=True)
class Polled:
    """What a poll found: the offset that was stored before it, and the record, if there is one."""

    stored: int
    fetched: Fetched | None


@dataclass(frozen=True, slots=True)
class Sought:
    """Where a seek ended, and how many records on the way there were removed."""

    next_offset: int
    skipped: int


def stream_of(name: str) -> str:
    """Return the stream that a queue of this name is."""
    return f"queue-{check_text('name', name)}"


def queue_of(stream_name: str) -> str:
    """Return the name of the queue that a stream is."""
    return stream_name.removeprefix("queue-")


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
    """Return the message that holds a record; refuse a value that would come back as another.

    What a serializer of the caller's does to a value is its own affair.
    """
    message = record.message()
    if type(context.serializer) is JsonSerializer:
        data = {"value": record.value}
        text = encode_object(context.serializer, message.type, "data", data)
        if context.serializer.decode(message.type, text) != data:  # as of a tuple, a UUID, bytes
            raise ValidationError("value", record.value, "what JSON gives back as it was")
    return message


def records_of(values: Iterable[Any]) -> list[Record]:
    """Return values as records; what is a `Record` already stays as it is."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise ValidationError("values", values, "several values, such as a list of them")
    return [value if isinstance(value, Record) else Record(value) for value in values]


def fetch_at(
    context: LogContext, stream_name: str, offset: int
) -> Operation[ConsumedRecord | None]:
    """Read the record at an offset; None if there is none."""

    def decode(rows: list[Row]) -> ConsumedRecord | None:
        fetched = _fetched(context, rows)
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


def open_session(context: LogContext, stream_name: str, consumer_id: str) -> Operation[Opened]:
    """Open a session, which fences the one that is open under this consumer id."""
    context.require_penstock("a queue's consumer")
    check_text("consumer_id", consumer_id)

    def decode(rows: list[Row]) -> Opened:
        ((epoch, next_offset),) = rows
        return Opened(SessionId(stream_name, consumer_id, epoch), next_offset)

    return call(
        "open_session",
        "select epoch, next_offset from penstock.open_session(%s, %s)",
        (stream_name, consumer_id),
        decode,
        stream_name=stream_name,
        consumer_id=consumer_id,
    )


def poll(
    context: LogContext, session: SessionId, next_offset: int, auto_commit: bool, seen: int = 0
) -> Operation[Polled]:
    """Read the record at an offset, or the next one that is left.

    A stored offset below the one that was `seen` was taken back by a rollback: then read there.
    """

    def decode(rows: list[Row]) -> Polled:
        ((stored, *message),) = rows
        return Polled(stored, None if message[0] is None else _fetched(context, [tuple(message)]))

    return call(
        "poll",
        "select s.stored, m.id, m.stream_name, m.type, m.position, m.global_position, m.data,"
        " m.metadata, m.time"
        " from (select penstock.committed_offset(%s, %s, %s) as stored) s"
        " left join lateral penstock.poll_session(%s, %s, %s,"
        " case when s.stored < %s then s.stored else %s end, %s) m on true",
        (*_identity(session), *_identity(session), seen, next_offset, auto_commit),
        decode,
        **_facts(session),
    )


def commit(session: SessionId, next_offset: int, rewind: bool, seen: int = 0) -> Operation[int]:
    """Store an offset; the result is what is stored then.

    Nothing is stored if a rollback has taken the stored offset below the one that was `seen`.
    """
    return call(
        "commit",
        "select case when s.stored < %s then s.stored"
        " else penstock.commit_session(%s, %s, %s, %s, %s) end"
        " from (select penstock.committed_offset(%s, %s, %s) as stored) s",
        (seen, *_identity(session), next_offset, rewind, *_identity(session)),
        only_value,
        **_facts(session),
    )


def seek(session: SessionId, wanted: int | None, persist: bool) -> Operation[Sought]:
    """Find where a session will be that wants to be at an offset, or at the tail if None."""
    return call(
        "seek",
        "select next_offset, skipped from penstock.seek_session(%s, %s, %s, %s, %s)",
        (*_identity(session), wanted, persist),
        lambda rows: Sought(*rows[0]),
        **_facts(session),
    )


def committed_offset(session: SessionId) -> Operation[int]:
    """Look up the offset that is stored."""
    return call(
        "committed_offset",
        "select penstock.committed_offset(%s, %s, %s)",
        _identity(session),
        only_value,
        **_facts(session),
    )


def check_offset(name: str, value: object) -> int:
    """Return a checked offset: one that has a next."""
    if not is_whole(value) or value < 0 or not is_whole(value + 1):
        raise ValidationError(name, value, "an offset: a whole number of 0 or more")
    return value


def _fetched(context: LogContext, rows: list[Row]) -> Fetched | None:
    if not rows:
        return None
    offset, global_position = rows[0][3:5]
    try:
        (message,) = context.decode(rows)
        return Fetched(offset, consumed(message))
    except Exception as error:  # a serializer may raise anything
        undecodable = UndecodableRecord(
            rows[0][1], offset, global_position, getattr(error, "reason", None) or first_line(error)
        )
        undecodable.__cause__ = error
        return Fetched(offset, undecodable)


def _identity(session: SessionId) -> tuple[str, str, int]:
    return session.stream_name, session.consumer_id, session.epoch


def _facts(session: SessionId) -> dict[str, Any]:
    return {"stream_name": session.stream_name, "consumer_id": session.consumer_id}
