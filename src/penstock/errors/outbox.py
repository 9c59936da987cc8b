"""The outbox and joins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from penstock.errors.base import PenstockError


@dataclass(eq=False)
class OutboxError(PenstockError):
    """The outbox or a join cannot do this.

    See the errors below.
    """


@dataclass(eq=False)
class StaleLease(OutboxError):
    """The lease on `message_ids` has ended. These messages are unchanged.

    Do nothing: the current holder settles them. A longer lease or `extend` avoids it. Repeating a
    call that succeeded with the same claim raises nothing.
    """

    sqlstates: ClassVar[tuple[str, ...]] = ("PS066",)

    message_ids: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"no longer leased, and left unchanged: {', '.join(self.message_ids)}; "
            "their lease ended, or they were finished already"
        )


@dataclass(eq=False)
class OutboxMessageNotFound(OutboxError):
    """The outbox has no such message, or it was cleaned up.

    Check the id. `list()` returns the messages that exist.
    """

    sqlstates: ClassVar[tuple[str, ...]] = ("PS062",)

    message_id: str

    def __str__(self) -> str:
        return f"there is no outbox message {self.message_id}: was it cleaned up?"


@dataclass(eq=False)
class JoinNotFound(OutboxError):
    """There is no such join, or it was cleaned up.

    Check the id.
    """

    sqlstates: ClassVar[tuple[str, ...]] = ("PS060",)

    join_id: str

    def __str__(self) -> str:
        return f"there is no join {self.join_id}"


@dataclass(eq=False)
class JoinFinished(OutboxError):
    """The join is completed, failed or cancelled (`status`), which is final.

    Start another join.
    """

    sqlstates: ClassVar[tuple[str, ...]] = ("PS061",)

    join_id: str
    status: str

    def __str__(self) -> str:
        return f"join {self.join_id} is {self.status}, and that is final"


@dataclass(eq=False)
class JoinFull(OutboxError):
    """The join already has as many members as it expects steps.

    Start it with a larger `expected_steps`.
    """

    sqlstates: ClassVar[tuple[str, ...]] = ("PS063",)

    join_id: str
    expected_steps: int

    def __str__(self) -> str:
        return f"join {self.join_id} expects {self.expected_steps} steps and has them all"


@dataclass(eq=False)
class JoinMemberNotFound(OutboxError):
    """A step was reported for a message that is not attached to the join.

    Attach the message first.
    """

    sqlstates: ClassVar[tuple[str, ...]] = ("PS064",)

    join_id: str
    message_id: str

    def __str__(self) -> str:
        return f"message {self.message_id} is not attached to join {self.join_id}"


@dataclass(eq=False)
class JoinCycle(OutboxError):
    """The wait for a join would be a step of that join, directly or through other joins.

    Attach the message to a join that does not depend on it.
    """

    sqlstates: ClassVar[tuple[str, ...]] = ("PS067", "PS068")

    join_id: str
    message_id: str
    #: the join that the message waits for, if that is not `join_id` itself
    waiting_join_id: str | None = None

    def __str__(self) -> str:
        if self.waiting_join_id is None:
            return (
                f"message {self.message_id} waits for join {self.join_id} "
                "and cannot be a step of it"
            )
        return (
            f"message {self.message_id} waits for join {self.waiting_join_id}, which waits for "
            f"join {self.join_id}: with the message as a step, neither could ever complete"
        )


@dataclass(eq=False)
class JoinAwaited(OutboxError):
    """The join already has a wait: `wait_id`.

    Do nothing: a join has one wait and one follow-up.
    """

    sqlstates: ClassVar[tuple[str, ...]] = ("PS065",)

    join_id: str
    wait_id: str

    def __str__(self) -> str:
        return f"join {self.join_id} already has a wait: message {self.wait_id}"


@dataclass(eq=False)
class PermanentFailure(OutboxError):
    """Raised by a handler of yours: the message fails at once, with no further attempt.

    Raise it for a message that can never succeed. `retry_failed` tries it again later.
    """

    reason: str

    def __str__(self) -> str:
        return self.reason
