"""What can go wrong with consumers and sessions."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors.base import PenstockError, shown


@dataclass(eq=False)
class ConsumerError(PenstockError):
    """A consumer cannot go on."""


@dataclass(eq=False)
class HandlerFailed(ConsumerError):
    """A handler failed for good. The consumer stopped, and will resume with this message."""

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
    """A message of a type that no handler takes, in a consumer that refuses such."""

    type: str
    stream_name: str
    global_position: int

    def __str__(self) -> str:
        return (
            f"no handler takes type {self.type}, of message {self.global_position} "
            f"(stream {self.stream_name}): add one, or construct the consumer with unknown='ignore'"
        )


@dataclass(eq=False)
class InvalidPosition(ConsumerError):
    """A position stream ends with a message that holds no position."""

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
    """The consumer's position was moved by somebody else: a second process, or an operator."""

    consumer_id: str
    expected: int | None
    actual: int | None

    def __str__(self) -> str:
        return (
            f"the position of consumer {self.consumer_id} was moved by somebody else: does another "
            "process run under this id, was it moved with `penstock seek`, or the log truncated?"
        )


@dataclass(eq=False)
class ParkedMessageNotFound(ConsumerError):
    """No such message waits in the consumer's parked stream."""

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
    """A session refuses what was asked of it."""

    stream_name: str
    consumer_id: str


@dataclass(eq=False)
class SessionFenced(SessionError):
    """A newer session was opened with the same consumer id, and this one changes nothing more."""

    def __str__(self) -> str:
        return (
            f"another session of {self.stream_name} was opened with consumer id "
            f"{shown(self.consumer_id)}, and only the newest works: give each consumer its own id "
            "(or the transaction that opened this one was rolled back, or the log was truncated: "
            "open it again)"
        )


@dataclass(eq=False)
class SessionClosed(SessionError):
    """The session was closed and cannot be used again."""

    def __str__(self) -> str:
        return (
            f"this session of {self.stream_name} (consumer id {shown(self.consumer_id)}) was "
            "closed: create another"
        )


@dataclass(eq=False)
class SessionInUse(SessionError):
    """Two threads or tasks use one session at the same time."""

    def __str__(self) -> str:
        return (
            f"this session of {self.stream_name} (consumer id {shown(self.consumer_id)}) is in use "
            "by another thread or task: a session is for one at a time"
        )


@dataclass(eq=False)
class NothingToCommit(SessionError):
    """`commit()` was called, and nothing was polled since the last commit."""

    def __str__(self) -> str:
        return (
            f"nothing to commit: consumer {shown(self.consumer_id)} polled no record of "
            f"{self.stream_name} since its last commit"
        )


@dataclass(eq=False)
class NothingToSkip(SessionError):
    """`skip()` was called, and the last poll met no record that cannot be decoded."""

    def __str__(self) -> str:
        return (
            f"nothing to skip: consumer {shown(self.consumer_id)} does not stand at a record of "
            f"{self.stream_name} that cannot be decoded"
        )


@dataclass(eq=False)
class OffsetBeyondTail(PenstockError, ValueError):
    """The offset is higher than any that a record has. Nothing was changed."""

    stream_name: str
    offset: int
    tail: int

    def __str__(self) -> str:
        return (
            f"offset {self.offset} of {self.stream_name} does not exist yet: "
            f"the next record will get offset {self.tail}"
        )
