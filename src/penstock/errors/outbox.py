"""The outbox and joins."""

from __future__ import annotations

from penstock.errors.base import PenstockError


class OutboxError(PenstockError):
    """The outbox or a join cannot do this."""


class StaleLease(OutboxError, sqlstates=("PS066",)):
    """The lease on `message_ids` has ended. These messages are unchanged.

    Do nothing: the current holder settles them. A longer lease or `extend` avoids it. Repeating a
    call that succeeded with the same claim raises nothing.
    """

    message_ids: tuple[str, ...]
    template = (
        "no longer leased, and left unchanged: {message_ids}; their lease ended, or they were "
        "finished already"
    )


class OutboxMessageNotFound(OutboxError, sqlstates=("PS062",)):
    """The outbox has no such message, or it was cleaned up.

    Check the id. `list()` returns the messages that exist.
    """

    message_id: str
    template = "there is no outbox message {message_id}: was it cleaned up?"


class JoinNotFound(OutboxError, sqlstates=("PS060",)):
    """There is no such join, or it was cleaned up.

    Check the id.
    """

    join_id: str
    template = "there is no join {join_id}"


class JoinFinished(OutboxError, sqlstates=("PS061",)):
    """The join is completed, failed or cancelled (`status`), which is final.

    Start another join.
    """

    join_id: str
    status: str
    template = "join {join_id} is {status}, and that is final"


class JoinFull(OutboxError, sqlstates=("PS063",)):
    """The join already has as many members as it expects steps.

    Start it with a larger `expected_steps`.
    """

    join_id: str
    expected_steps: int
    template = "join {join_id} expects {expected_steps} steps and has them all"


class JoinMemberNotFound(OutboxError, sqlstates=("PS064",)):
    """A step was reported for a message that is not attached to the join.

    Attach the message first.
    """

    join_id: str
    message_id: str
    template = "message {message_id} is not attached to join {join_id}"


class JoinCycle(OutboxError, sqlstates=("PS067", "PS068")):
    """The wait for a join would be a step of that join, directly or through other joins.

    Attach the message to a join that does not depend on it.
    """

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


class JoinAwaited(OutboxError, sqlstates=("PS065",)):
    """The join already has a wait: `wait_id`.

    Do nothing: a join has one wait and one follow-up.
    """

    join_id: str
    wait_id: str
    template = "join {join_id} already has a wait: message {wait_id}"


class PermanentFailure(OutboxError):
    """Raised by a handler of yours: the message fails at once, with no further attempt.

    Raise it for a message that can never succeed. `retry_failed` tries it again later.
    """

    reason: str
    template = "{reason}"
