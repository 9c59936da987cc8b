"""Remove the oldest messages of a stream, a category or a queue.

The rules are in `sql/penstock/22_retention.sql`: only a prefix goes, no consumer loses what it has
not read unless it is overruled, and the last message of each stream stays. Here the work is cut
into short transactions, so that a long clean-up holds nobody back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from penstock.consumers.awaiting import RunsAsync
from penstock.consumers.blocking import Runs
from penstock.database.operation import Operation, call
from penstock.errors import ValidationError
from penstock.log.context import LogContext, check_position
from penstock.message import check_text

BATCH = 10_000
_LONGEST = timedelta(days=365_000)  # further back than any message, and still a date


@dataclass(frozen=True, slots=True)
class Retained:
    """How many messages were removed, and which consumer kept more from going, if one did."""

    removed: int
    held_back_by: str | None


@dataclass(frozen=True, slots=True)
class Batch:
    """What one transaction removed, the last of it, and who kept the rest, if that is known."""

    removed: int
    last_position: int
    held_back_by: str | None


@dataclass(frozen=True, slots=True)
class Keep:
    """What to keep: exactly one of a number of messages, an age, or a position to keep from."""

    count: int | None = None
    age: timedelta | None = None
    from_position: int | None = None

    def __post_init__(self) -> None:
        """Refuse none and several, and what makes no sense."""
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


def retain(
    store: Runs,
    target: str,
    keep: Keep,
    *,
    ignore_consumers: bool = False,
    progress: Callable[[int], None] = lambda removed: None,
) -> Retained:
    """Remove what need not be kept, batch by batch; `progress` is told the sum after each."""
    since = _since(keep)
    removed = after = 0
    while True:
        batch = store.run(remove_batch(store.context, target, keep, since, ignore_consumers, after))
        removed += batch.removed
        progress(removed)
        if batch.removed < BATCH:
            return Retained(removed, batch.held_back_by)
        after = batch.last_position


async def retain_async(
    store: RunsAsync,
    target: str,
    keep: Keep,
    *,
    ignore_consumers: bool = False,
    progress: Callable[[int], None] = lambda removed: None,
) -> Retained:
    """Do the same for async code."""
    since = _since(keep)
    removed = after = 0
    while True:
        batch = await store.run(
            remove_batch(store.context, target, keep, since, ignore_consumers, after)
        )
        removed += batch.removed
        progress(removed)
        if batch.removed < BATCH:
            return Retained(removed, batch.held_back_by)
        after = batch.last_position


def remove_batch(
    context: LogContext,
    target: str,
    keep: Keep,
    since: datetime | None,
    ignore_consumers: bool,
    after: int,
) -> Operation[Batch]:
    """Remove one batch, of messages after a global position."""
    check_text("target", target)
    if not isinstance(ignore_consumers, bool):
        raise ValidationError("ignore_consumers", ignore_consumers, "True or False")
    if target == "$all":
        raise ValidationError("target", target, "a stream or a category")
    context.require_penstock("retention")
    return call(
        "retain",
        "select * from penstock.retain(%s, %s, %s, %s, %s, %s, %s)",
        (target, keep.count, since, keep.from_position, ignore_consumers, BATCH, after),
        lambda rows: Batch(*rows[0]),
        target=target,
    )


def _since(keep: Keep) -> datetime | None:
    """Fix the moment once, so that a long clean-up does not run after the clock."""
    return None if keep.age is None else datetime.now(UTC) - min(keep.age, _LONGEST)
