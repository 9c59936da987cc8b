"""Consumers and sessions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from penstock.errors.base import PenstockError, shown


@dataclass(eq=False)
class ConsumerError(PenstockError):
    """A consumer cannot continue.

    See the errors below.
    """


@dataclass(eq=False)
class HandlerFailed(ConsumerError):
    """A handler failed and its failure policy is to stop. The consumer resumes with this message.

    Fix the handler and start the consumer again.
    """

    type: str
    stream_name: str
    global_position: int
    attempts: int
    reason: str

    def __str__(self) -> str:
        return (
            f"the handler of {self.type} failed on message {self.global_position} "
            f"(stream {self.stream_name}) after {self.attempts} attempts: "
            f"{self.reason}"
        )


@dataclass(eq=False)
class UnhandledMessageType(ConsumerError):
    """The consumer has no handler for this type and does not ignore unknown types.

    Add a handler, or construct the consumer with `unknown="ignore"`.
    """

    type: str
    stream_name: str
    global_position: int

    def __str__(self) -> str:
        return (
            f"no handler for type {self.type}, of message {self.global_position} "
            f"(stream {self.stream_name}): add one, or construct the consumer with unknown='ignore'"
        )


@dataclass(eq=False)
class InvalidPosition(ConsumerError):
    """The last message of a position stream holds no position.

    Run `penstock seek`, or write a valid position to `stream_name`.
    """

    stream_name: str
    position: int
    data: object

    def __str__(self) -> str:
        return (
            f"message {self.position} of {self.stream_name} should hold a position, such as "
            f"{{'position': 12}}; it holds {shown(self.data)}"
        )


@dataclass(eq=False)
class PositionConflict(ConsumerError):
    """Another process or an operator moved this consumer's position.

    Run one process per consumer id, and start the consumer again.
    """

    sqlstates: ClassVar[tuple[str, ...]] = ("PS030",)

    consumer_id: str
    expected: int | None
    actual: int | None

    def __str__(self) -> str:
        return (
            f"the position of consumer {self.consumer_id} was changed outside this process: "
            "another process uses this id, `penstock seek` moved it, or the log was truncated"
        )


@dataclass(eq=False)
class ParkedMessageNotFound(ConsumerError):
    """The consumer has no such parked message.

    List the parked messages: this one was handled or dropped meanwhile.
    """

    category: str
    consumer_id: str
    global_position: int

    def __str__(self) -> str:
        return (
            f"consumer {self.consumer_id} of {self.category} has no parked message "
            f"{self.global_position}: it was handled or dropped, or never parked"
        )


@dataclass(eq=False)
class SessionError(PenstockError, RuntimeError):
    """A session cannot do this.

    See the errors below.
    """

    stream_name: str
    consumer_id: str


@dataclass(eq=False)
class SessionFenced(SessionError):
    """A newer session has the same consumer id, or the opening transaction was rolled back.

    Give each consumer its own id, and open the session again.
    """

    sqlstates: ClassVar[tuple[str, ...]] = ("PS020",)

    def __str__(self) -> str:
        return (
            f"another session of {self.stream_name} was opened with consumer id "
            f"{shown(self.consumer_id)}, and only the newest works: give each consumer its own id "
            "(or the transaction that opened this one was rolled back, or the log was truncated: "
            "open it again)"
        )


@dataclass(eq=False)
class SessionClosed(SessionError):
    """The session was closed.

    Create another session.
    """

    def __str__(self) -> str:
        return (
            f"this session of {self.stream_name} (consumer id {shown(self.consumer_id)}) was "
            "closed: create another"
        )


@dataclass(eq=False)
class SessionInUse(SessionError):
    """Two threads or tasks use one session at the same time.

    Use one session per thread or task.
    """

    def __str__(self) -> str:
        return (
            f"this session of {self.stream_name} (consumer id {shown(self.consumer_id)}) is in use "
            "by another thread or task: use one session per thread or task"
        )


@dataclass(eq=False)
class NothingToCommit(SessionError):
    """`commit()` was called and nothing was polled since the last commit or rollback.

    Poll first.
    """

    def __str__(self) -> str:
        return (
            f"nothing to commit: consumer {shown(self.consumer_id)} polled no record of "
            f"{self.stream_name} since its last commit"
        )


@dataclass(eq=False)
class NothingToSkip(SessionError):
    """`skip()` was called and the last poll raised no `UndecodableRecord`.

    Call `skip()` only after `UndecodableRecord`.
    """

    def __str__(self) -> str:
        return (
            f"nothing to skip: the last poll of consumer {shown(self.consumer_id)} found no record "
            f"of {self.stream_name} that cannot be decoded"
        )


@dataclass(eq=False)
class OffsetBeyondTail(PenstockError, ValueError):
    """The queue has no record with this offset yet. Nothing was changed.

    Seek to the tail at most.
    """

    sqlstates: ClassVar[tuple[str, ...]] = ("PS021",)

    stream_name: str
    offset: int
    tail: int

    def __str__(self) -> str:
        return (
            f"offset {self.offset} of {self.stream_name} does not exist yet: "
            f"the next record will get offset {self.tail}"
        )
