"""What a consumer does when a handler fails."""

from __future__ import annotations

import random
from dataclasses import dataclass

from penstock.errors import ValidationError

_LONGEST_ERROR = 10_000
_LONGEST_DELAY = 366 * 86_400


@dataclass(frozen=True, slots=True)
class FailurePolicy:
    """How often to try a message, how long to wait between, and what to do when all tries failed.

    Make one with `FailurePolicy.stop()`, `.retry(...)` or `.park(...)`.
    """

    attempts: int = 1
    delay: float = 0.1
    longest_delay: float = 30.0
    parks: bool = False

    def __post_init__(self) -> None:
        """Refuse a policy that could never try."""
        if not isinstance(self.attempts, int) or self.attempts < 1:
            raise ValidationError("attempts", self.attempts, "at least 1")
        longest = self.longest_delay
        if not isinstance(longest, int | float) or not 0 <= longest <= _LONGEST_DELAY:
            raise ValidationError("longest_delay", longest, "from 0 seconds to a year of them")
        if not isinstance(self.delay, int | float) or not 0 <= self.delay <= longest:
            raise ValidationError("delay", self.delay, "from 0 to longest_delay, in seconds")

    @classmethod
    def stop(cls) -> FailurePolicy:
        """Stop the consumer at the first failure; it resumes with the same message."""
        return cls()

    @classmethod
    def retry(
        cls, attempts: int = 5, delay: float = 0.1, longest_delay: float = 30.0
    ) -> FailurePolicy:
        """Try again, with doubling pauses and jitter; stop the consumer when all tries failed."""
        return cls(attempts, delay, longest_delay)

    @classmethod
    def park(
        cls, attempts: int = 5, delay: float = 0.1, longest_delay: float = 30.0
    ) -> FailurePolicy:
        """Try again; when all tries failed, park the message with its error and go on."""
        return cls(attempts, delay, longest_delay, parks=True)

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
    """Return the text of an error as PostgreSQL can hold it, and not at any length."""
    if not isinstance(error, str):
        raise ValidationError("error", error, "a text")
    return error[:_LONGEST_ERROR].encode(errors="backslashreplace").decode().replace("\0", "\\0")
