"""Remove the oldest messages of a stream, a category or a queue.

The rules are in `sql/penstock/22_retention.sql`: only the oldest messages are removed, messages
that a consumer has not read stay unless consumers are ignored, and the last message of each stream
stays. A run computes its bounds once. It removes messages in short transactions, which do not hold
readers back.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from penstock.database.operation import Operation, call
from penstock.errors import ValidationError
from penstock.log.context import LogContext, check_position
from penstock.message import check_text

BATCH_SIZE = 10_000  # messages removed in one transaction
_LONGEST = timedelta(days=365_000)  # older than any message, and still a valid date in PostgreSQL


@dataclass(frozen=True, slots=True)
class Retained:
    """The number of messages removed, and the consumer that held others back, if any."""

    removed: int
    held_back_by: str | None


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of a run, computed once and with the server's clock."""

    stream_bound: int
    global_bound: int
    keep_since: datetime | None
    position_streams: list[str]


@dataclass(frozen=True, slots=True)
class Batch:
    """What one transaction removed, the position it reached, and the consumer that held it back."""

    removed: int
    walked_to: int | None
    held_back_by: str | None


@dataclass(frozen=True, slots=True)
class Keep:
    """What to keep: exactly one of a number of messages, an age, or a position to keep from."""

    count: int | None = None
    age: timedelta | None = None
    from_position: int | None = None

    def __post_init__(self) -> None:
        """Refuse anything but exactly one valid value."""
        given = [one for one in (self.count, self.age, self.from_position) if one is not None]
        if len(given) != 1:
            raise ValidationError("keep", self, "exactly one of a count, an age or a position")
        if self.count is not None:
            check_position("count", self.count)
        if self.from_position is not None:
            check_position("from_position", self.from_position)
        if self.age is not None and not (
            isinstance(self.age, timedelta) and self.age >= timedelta()
        ):
            raise ValidationError("age", self.age, "a timedelta of 0 or more")


@dataclass(slots=True)
class Run:
    """The progress of a retention run."""

    target: str
    ignore_consumers: bool
    batch_size: int = BATCH_SIZE
    removed: int = 0
    walked_to: int | None = None
    held_back_by: str | None = None
    ended: bool = False

    def count(self, batch: Batch) -> None:
        """Add the result of one transaction."""
        self.removed += batch.removed
        self.held_back_by = self.held_back_by or batch.held_back_by
        self.walked_to = batch.walked_to
        self.ended = batch.walked_to is None

    def retained(self) -> Retained:
        """Return the result of the run."""
        return Retained(self.removed, self.held_back_by)


def find_bounds(
    context: LogContext, target: str, keep: Keep, ignore_consumers: bool
) -> Operation[Bounds]:
    """Compute the bounds of a run."""
    check_text("target", target)
    if not isinstance(ignore_consumers, bool):
        raise ValidationError("ignore_consumers", ignore_consumers, "True or False")
    if target == "$all":
        raise ValidationError("target", target, "a stream or a category")
    context.require_penstock("retention")
    age = None if keep.age is None else min(keep.age, _LONGEST)
    return call(
        "retention_bounds",
        "select stream_bound, global_bound, keep_since, position_streams"
        " from penstock.retention_bounds(%s, %s, %s, %s)",
        (target, keep.count, age, keep.from_position),
        lambda rows: Bounds(*rows[0]),
        target=target,
    )


def remove_batch(run: Run, bounds: Bounds) -> Operation[Batch]:
    """Remove the next batch of the run."""
    return call(
        "retain",
        "select removed, walked_to, held_back_by"
        " from penstock.remove_messages(%s, %s, %s, %s, %s, %s, %s, %s)",
        (
            run.target,
            bounds.stream_bound,
            bounds.global_bound,
            bounds.keep_since,
            bounds.position_streams,
            run.ignore_consumers,
            run.walked_to,
            run.batch_size,
        ),
        lambda rows: Batch(*rows[0]),
        target=run.target,
    )
