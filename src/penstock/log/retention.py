"""Remove the oldest messages of a stream, a category or a queue.

The rules are in `sql/penstock/22_retention.sql`: only the oldest messages are removed, messages
that a consumer has not read stay unless consumers are ignored, and the last message of each stream
stays, except of a stream that is named after its only message. A run computes its bounds once. It
removes messages in short transactions, which do not hold readers back.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

import msgspec

from penstock.database.operation import Operation, call
from penstock.errors import ValidationError
from penstock.log.context import LogContext, check_position
from penstock.message import check_text

BATCH_SIZE = 10_000  # messages removed in one transaction
_LONGEST = timedelta(days=365_000)  # older than any message, and still a valid date in PostgreSQL


@dataclass(frozen=True, slots=True)
class SlowestReader:
    """A reader that has not read messages which retention would remove otherwise."""

    kind: Literal["consumer", "session", "group", "processor"]
    #: its id; of a processor, with its pipeline: shop.bill
    name: str
    #: its category, `$all`, or its queue's stream; None for a group, which reads all categories
    reads: str | None
    #: the first position that it has not read: a global one, or one in the stream that it reads
    needs: int
    #: of a group: active, stopped or parked; of a processor: active or failed
    state: str | None
    #: when the message was written that it has to read next
    waiting_since: datetime | None
    #: when its position was last stored, or its partition parked; None if it never was
    updated_at: datetime | None


@dataclass(frozen=True, slots=True)
class Retained:
    """The number of messages removed, and the reader that held others back, if any."""

    removed: int
    held_back_by: SlowestReader | None


class Bounds(NamedTuple):
    """The bounds of a run, computed once and with the server's clock."""

    stream_bound: int
    global_bound: int
    keep_since: datetime | None
    position_streams: list[str]


class Batch(NamedTuple):
    """What one transaction removed, where it stopped (None at the end), and who held it back."""

    removed: int
    walked_to: int | None
    held_back_by: SlowestReader | None


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
        elif self.from_position is not None:
            check_position("from_position", self.from_position)
        elif not isinstance(self.age, timedelta) or self.age < timedelta():
            raise ValidationError("age", self.age, "a timedelta of 0 or more")


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


def remove_batch(
    target: str,
    bounds: Bounds,
    ignore_consumers: bool,
    walked_to: int | None = None,
    batch_size: int = BATCH_SIZE,
) -> Operation[Batch]:
    """Remove the next batch, after the position that the last one walked to."""
    return call(
        "retain",
        "select removed, walked_to, held_back_by"
        " from penstock.remove_messages(%s, %s, %s, %s, %s, %s, %s, %s)",
        (target, *bounds, ignore_consumers, walked_to, batch_size),
        lambda rows: msgspec.convert(rows[0], Batch),
        target=target,
    )
