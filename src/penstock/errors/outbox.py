"""What can go wrong in the outbox and with joins."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors.base import PenstockError


@dataclass(eq=False)
class OutboxError(PenstockError):
    """The outbox or a join cannot do this."""


@dataclass(eq=False)
class StaleLease(OutboxError):
    """These messages are not yours any more: their lease ended and somebody else has them."""

    message_ids: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"not held any more, and left as they are: {', '.join(self.message_ids)}; "
            "their lease ended, or they were finished already"
        )


@dataclass(eq=False)
class OutboxMessageNotFound(OutboxError):
    """There is no such message in the outbox."""

    message_id: str

    def __str__(self) -> str:
        return f"there is no outbox message {self.message_id}: was it cleaned up?"


@dataclass(eq=False)
class JoinNotFound(OutboxError):
    """There is no such join."""

    join_id: str

    def __str__(self) -> str:
        return f"there is no join {self.join_id}"


@dataclass(eq=False)
class JoinFinished(OutboxError):
    """The join is completed, failed or cancelled already, and that is final."""

    join_id: str
    status: str

    def __str__(self) -> str:
        return f"join {self.join_id} is {self.status}, and that is final"


@dataclass(eq=False)
class JoinFull(OutboxError):
    """The join has all the members it expects."""

    join_id: str
    expected_steps: int

    def __str__(self) -> str:
        return f"join {self.join_id} expects {self.expected_steps} steps and has them all"


@dataclass(eq=False)
class NotAJoinMember(OutboxError):
    """The message was never attached to the join."""

    join_id: str
    message_id: str

    def __str__(self) -> str:
        return f"message {self.message_id} is not attached to join {self.join_id}"


@dataclass(eq=False)
class JoinOfItsOwnWait(OutboxError):
    """The message waits for the join, which could never be complete if it were a step of it."""

    join_id: str
    message_id: str

    def __str__(self) -> str:
        return f"message {self.message_id} waits for join {self.join_id} and cannot be a step of it"


@dataclass(eq=False)
class JoinRing(OutboxError):
    """The message waits for a join that waits for this one: neither would ever be complete."""

    join_id: str
    message_id: str
    waiting_join_id: str

    def __str__(self) -> str:
        return (
            f"message {self.message_id} waits for join {self.waiting_join_id}, which waits for join"
            f" {self.join_id}: as a step of it, neither would ever be complete"
        )


@dataclass(eq=False)
class JoinAwaited(OutboxError):
    """The join is waited for already: it has one wait and one follow-up."""

    join_id: str
    wait_id: str

    def __str__(self) -> str:
        return f"join {self.join_id} is waited for already, by message {self.wait_id}"


@dataclass(eq=False)
class PermanentFailure(OutboxError):
    """Raise it in a handler: this message will never succeed, do not try it again."""

    reason: str

    def __str__(self) -> str:
        return self.reason
