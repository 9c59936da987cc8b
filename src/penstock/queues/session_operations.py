"""The operations of a consumer's session on a queue: each is one call of one SQL function.

`session_state.py` says when a session runs which. `sql/penstock/20_sessions.sql` keeps the offsets,
and compares the epoch of each call with that of the newest session.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.database.operation import Operation, Row, call, only_value
from penstock.log.context import LogContext
from penstock.message import check_text
from penstock.queues.operations import FetchedRecord, check_offset, fetched_record


@dataclass(frozen=True, slots=True)
class SessionId:
    """A session: its queue's stream, its consumer id, and its number among that id's sessions."""

    stream_name: str
    consumer_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class OpenedSession:
    """A session that was just opened, and the offset that it reads first."""

    id: SessionId
    next_offset: int


@dataclass(frozen=True, slots=True)
class PollResult:
    """The offset that was stored before a poll, and the record that it found, if any."""

    stored: int
    fetched: FetchedRecord | None


@dataclass(frozen=True, slots=True)
class SeekResult:
    """The offset that a seek went to, and how many records before it were removed."""

    next_offset: int
    skipped: int


def open_session(
    context: LogContext, stream_name: str, consumer_id: str
) -> Operation[OpenedSession]:
    """Open a session. Fences the one that is open under this consumer id."""
    context.require_penstock("a queue's consumer")
    check_text("consumer_id", consumer_id)

    def decode(rows: list[Row]) -> OpenedSession:
        ((epoch, next_offset),) = rows
        return OpenedSession(SessionId(stream_name, consumer_id, epoch), next_offset)

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
) -> Operation[PollResult]:
    """Read the record at an offset, or the oldest one after it.

    If the stored offset is below `seen`, the one that the session saw last, then a rollback has
    undone a commit: the record at the stored offset is read instead.
    """

    def decode(rows: list[Row]) -> PollResult:
        ((stored, *message),) = rows
        has_record = message[0] is not None
        return PollResult(stored, fetched_record(context, tuple(message)) if has_record else None)

    return call(
        "poll",
        "select s.stored, m.id, m.stream_name, m.type, m.position, m.global_position, m.data,"
        " m.metadata, m.time"
        " from (select penstock.committed_offset(%s, %s, %s) as stored) s"
        " left join lateral penstock.poll_session(%s, %s, %s,"
        " case when s.stored < %s then s.stored else %s end, %s) m on true",
        (*_key(session), *_key(session), seen, next_offset, auto_commit),
        decode,
        **_facts(session),
    )


def commit(session: SessionId, next_offset: int, rewind: bool, seen: int = 0) -> Operation[int]:
    """Store an offset; the result is the stored offset after that.

    Stores nothing if the stored offset is below `seen`: then a rollback has undone a commit.
    """
    return call(
        "commit",
        "select case when s.stored < %s then s.stored"
        " else penstock.commit_session(%s, %s, %s, %s, %s) end"
        " from (select penstock.committed_offset(%s, %s, %s) as stored) s",
        (seen, *_key(session), next_offset, rewind, *_key(session)),
        only_value,
        **_facts(session),
    )


def seek(session: SessionId, offset: int | None, persist: bool) -> Operation[SeekResult]:
    """Find the first record at or after an offset, or the tail if it is None."""
    return call(
        "seek",
        "select next_offset, skipped from penstock.seek_session(%s, %s, %s, %s, %s)",
        (*_key(session), offset, persist),
        lambda rows: SeekResult(*rows[0]),
        **_facts(session),
    )


def committed_offset(session: SessionId) -> Operation[int]:
    """Look up the stored offset."""
    return call(
        "committed_offset",
        "select penstock.committed_offset(%s, %s, %s)",
        _key(session),
        only_value,
        **_facts(session),
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


def _key(session: SessionId) -> tuple[str, str, int]:
    return session.stream_name, session.consumer_id, session.epoch


def _facts(session: SessionId) -> dict[str, Any]:
    return {"stream_name": session.stream_name, "consumer_id": session.consumer_id}
