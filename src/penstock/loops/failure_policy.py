"""What a consumer, worker or dispatcher does when a handler fails."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from penstock.errors import ValidationError
from penstock.loops.durations import Duration, seconds

_LONGEST_ERROR = 10_000


@dataclass(frozen=True, slots=True)
class FailurePolicy:
    """The number of attempts, the delays between them, and what happens after the last failure.

    Create one with `FailurePolicy.stop()`, `.retry(...)` or `.park(...)`, which take delays in
    seconds or as timedelta.
    """

    attempts: int = 1
    delay: float = 0.1
    longest_delay: float = 30.0
    parks: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.attempts, int) or self.attempts < 1:
            raise ValidationError("attempts", self.attempts, "at least 1")
        if seconds("delay", self.delay) > seconds("longest_delay", self.longest_delay):
            raise ValidationError("delay", self.delay, "at most longest_delay")

    @classmethod
    def stop(cls) -> FailurePolicy:
        """Stop the consumer at the first failure; it resumes with the same message."""
        return cls()

    @classmethod
    def retry(
        cls, attempts: int = 5, delay: Duration = 0.1, longest_delay: Duration = 30.0
    ) -> FailurePolicy:
        """Retry with exponential backoff and jitter; stop the consumer after the last attempt."""
        return cls(attempts, seconds("delay", delay), seconds("longest_delay", longest_delay))

    @classmethod
    def park(
        cls, attempts: int = 5, delay: Duration = 0.1, longest_delay: Duration = 30.0
    ) -> FailurePolicy:
        """Retry; after the last attempt, park the message with its error and continue."""
        return replace(cls.retry(attempts, delay, longest_delay), parks=True)

    def pause(self, attempt: int) -> float:
        """Return the seconds to wait after this attempt (the first is 1) has failed."""
        doubled = self.delay * 2.0 ** min(attempt - 1, 60)
        return min(self.longest_delay, doubled) * random.uniform(0.5, 1.0)


def checked_policy(policy: FailurePolicy | None, default: FailurePolicy) -> FailurePolicy:
    """Return the policy, or the default if there is none; refuse anything else."""
    if policy is None:
        return default
    if not isinstance(policy, FailurePolicy):
        raise ValidationError("on_failure", policy, "a FailurePolicy")
    return policy


def kept_error(error: object) -> str:
    """Return the text of an error, shortened, without characters that PostgreSQL cannot store."""
    if not isinstance(error, str):
        raise ValidationError("error", error, "a text")
    return error[:_LONGEST_ERROR].encode(errors="backslashreplace").decode().replace("\0", "\\0")
