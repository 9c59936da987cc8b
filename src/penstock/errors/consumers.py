"""Consumers and sessions."""

from __future__ import annotations

from penstock.errors.base import PenstockError


class ConsumerError(PenstockError):
    """A consumer cannot continue."""


class HandlerFailed(ConsumerError):
    """A handler failed and its failure policy is to stop. The consumer resumes with this message.

    Fix the handler and start the consumer again.
    """

    type: str
    stream_name: str
    global_position: int
    attempts: int
    reason: str
    template = (
        "the handler of {type} failed on message {global_position} (stream {stream_name}) after "
        "{attempts} attempts: {reason}"
    )


class UnhandledMessageType(ConsumerError):
    """The consumer has no handler for this type and does not ignore unknown types.

    Add a handler, or construct the consumer with `unknown="ignore"`.
    """

    type: str
    stream_name: str
    global_position: int
    template = (
        "no handler for type {type}, of message {global_position} (stream {stream_name}): add one, "
        "or construct the consumer with unknown='ignore'"
    )


class InvalidPosition(ConsumerError):
    """The last message of a position stream holds no position.

    Run `penstock seek`, or write a valid position to `stream_name`.
    """

    stream_name: str
    position: int
    data: object
    template = (
        "message {position} of {stream_name} should hold a position, such as {{'position': 12}}; "
        "it holds {data!r}"
    )


class PositionConflict(ConsumerError, sqlstates=("PS030",)):
    """Another process or an operator moved this consumer's position, or removed it.

    Run one process per consumer id, and start the consumer again.
    """

    consumer_id: str
    expected: int | None
    actual: int | None
    template = (
        "the position of consumer {consumer_id} was changed outside this process: another process "
        "uses this id, `penstock seek` moved it, `penstock consumers remove` removed it, or the "
        "log was truncated"
    )


class ParkedMessageNotFound(ConsumerError):
    """The consumer has no such parked message.

    List the parked messages: this one was handled or dropped meanwhile.
    """

    category: str
    consumer_id: str
    global_position: int
    template = (
        "consumer {consumer_id} of {category} has no parked message {global_position}: it was "
        "handled or dropped, or never parked"
    )


class ReaderNotFound(ConsumerError):
    """Nothing of this name has stored a position, so it cannot be waited for.

    Check the name, and start it first.
    """

    reader: str
    template = "there is no {reader}: it has stored no position yet"


class WaitTimedOut(PenstockError, TimeoutError, retryable=True):
    """What was waited for did not happen in time. It may happen later.

    Check that the reader runs; `reached` says how far it has come. Or wait for longer.
    """

    awaited: str
    timeout: float
    reached: str
    template = "{awaited} was not reached within {timeout} s: {reached}"


class SessionError(PenstockError, RuntimeError):
    """A session cannot do this."""

    stream_name: str
    consumer_id: str


class SessionFenced(SessionError, sqlstates=("PS020",)):
    """A newer session has the same consumer id, or an operator moved or removed the consumer.

    Give each consumer its own id, and open the session again.
    """

    template = (
        "another session of {stream_name} was opened with consumer id {consumer_id!r}, and only "
        "the newest works: give each consumer its own id (or an operator moved or removed this "
        "consumer, the transaction that opened this session was rolled back, or the log was "
        "truncated: open it again)"
    )


class SessionClosed(SessionError):
    """The session was closed.

    Create another session.
    """

    template = (
        "this session of {stream_name} (consumer id {consumer_id!r}) was closed: create another"
    )


class SessionInUse(SessionError):
    """Two threads or tasks use one session at the same time.

    Use one session per thread or task.
    """

    template = (
        "this session of {stream_name} (consumer id {consumer_id!r}) is in use by another thread "
        "or task: use one session per thread or task"
    )


class NothingToCommit(SessionError):
    """`commit()` was called and nothing was polled since the last commit or rollback.

    Poll first.
    """

    template = (
        "nothing to commit: consumer {consumer_id!r} polled no record of {stream_name} since its "
        "last commit"
    )


class NothingToSkip(SessionError):
    """`skip()` was called and the last poll raised no `UndecodableRecord`.

    Call `skip()` only after `UndecodableRecord`.
    """

    template = (
        "nothing to skip: the last poll of consumer {consumer_id!r} found no record of "
        "{stream_name} that cannot be decoded"
    )


class OffsetBeyondTail(PenstockError, ValueError, sqlstates=("PS021",)):
    """The queue has no record with this offset yet. Nothing was changed.

    Seek to the tail at most.
    """

    stream_name: str
    offset: int
    tail: int
    template = (
        "offset {offset} of {stream_name} does not exist yet: the next record will get offset "
        "{tail}"
    )
