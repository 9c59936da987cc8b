"""Claims on the partitions of a consumer group: what a worker asks for, and gives back.

The mechanism is described in `sql/penstock/33_groups.sql`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, get_args
from uuid import UUID

from penstock.database.arrays import text_array
from penstock.database.operation import Operation, Row, call
from penstock.errors import DecodingError, InvalidAck, ValidationError, first_line
from penstock.groups.groups import check_group
from penstock.log.boundary import MessageType, check_types
from penstock.log.context import LogContext, check_position
from penstock.log.guard import Guard, runs
from penstock.loops.failure_policy import kept_error
from penstock.message import RecordedMessage, check_text
from penstock.message.conditions import QueryCondition
from penstock.message.typed import type_name

_LONGEST_DELAY = 366 * 86_400  # seconds
#: which partition a claim gets, see `claim_next`
ClaimOrder = Literal["oldest", "round_robin"]

MOST_ATTRIBUTES = 5  # a partition of n attributes reads 2^n - 1 feeds


@dataclass(frozen=True, slots=True)
class Claim:
    """A partition that is yours until you acknowledge or release it, or its lease ends."""

    group_id: str
    offset_id: int
    #: the keys of the partition's attributes in the index
    key_pair_ids: list[int]
    #: such as "course_name:Algebra|user_id:joe"
    partition_key: str
    #: such as {"course_name": "Algebra", "user_id": "joe"}
    partition_value: dict[str, str]
    #: what the partition has not handled yet, oldest first
    messages: list[RecordedMessage]
    #: covers everything of the partition that is visible now, whether it is among the messages
    guard: Guard
    token: UUID
    #: whether these messages were handled before, until the group was reset
    replaying: bool
    #: how often the partition was claimed since it last moved on
    attempts: int
    #: why the message after these cannot be read, if it cannot; there may be none before it
    undecodable: DecodingError | None = None
    _last: int | None = field(init=False, repr=False, compare=False)  # whoever empties the list

    def __post_init__(self) -> None:
        """Remember what there is to acknowledge."""
        last = self.messages[-1].global_position if self.messages else None
        object.__setattr__(self, "_last", last)

    @property
    def last_position(self) -> int:
        """The global position of the last message: what to acknowledge when all are done."""
        if self._last is None:
            raise self.undecodable or ValidationError("claim", self, "a claim with messages")
        return self._last


def claim_next(
    context: LogContext,
    group_id: str,
    *,
    partition_by: str | Sequence[str],
    handled_types: Sequence[MessageType],
    worker_id: str,
    batch_size: int,
    lease: float,
    order: ClaimOrder,
) -> Operation[Claim | None]:
    """Claim the partition that comes first."""
    check_group(context, group_id)
    attributes = partition_attributes(partition_by)
    check_types(handled_types)
    check_text("worker_id", worker_id)
    check_batch_size(batch_size)
    check_order(order)
    types = list(dict.fromkeys(type_name(one) for one in handled_types))
    for one in types:
        check_text("handled_types", one)

    def decode(rows: list[Row]) -> Claim | None:
        if not rows:
            return None
        claim = rows[0][0]
        messages, undecodable = _readable(context, [row[1:] for row in rows])
        return Claim(
            group_id,
            claim["offset_id"],
            claim["key_pair_ids"],
            claim["partition_key"],
            dict(zip(claim["partition_by"], claim["partition_values"], strict=True)),
            messages,
            Guard(_conditions(claim["conditions"]), claim["low"], runs(claim["seen"])),
            UUID(claim["token"]),
            claim["replaying"],
            claim["attempts"],
            undecodable,
        )

    return call(
        "claim_next",
        "select * from penstock.claim_next(%s, %s::text[], %s::text[], %s, %s, %s, %s)",
        (
            group_id,
            text_array(attributes),
            text_array(types),
            worker_id,
            batch_size,
            as_lease(lease),
            order,
        ),
        decode,
        group_id=group_id,
    )


def ack(context: LogContext, claim: Claim, position: int | None) -> Operation[None]:
    """Note that a partition is handled up to a position, and give it back."""
    _check_claim(claim)
    until = claim.last_position if position is None else check_position("position", position)
    if until > claim.last_position:
        raise InvalidAck(claim.group_id, until, claim.last_position)
    return call(
        "ack",
        "select penstock.ack(%s, %s, %s, %s)",
        (claim.group_id, claim.offset_id, until, claim.token),
        lambda _: None,
        group_id=claim.group_id,
    )


def release(
    context: LogContext, claim: Claim, *, delay: float, error: str | None, park: bool
) -> Operation[None]:
    """Give a partition back as it was."""
    _check_claim(claim)
    if not isinstance(delay, int | float) or not 0 <= delay <= _LONGEST_DELAY:
        raise ValidationError("delay", delay, "from 0 seconds to a year of them")
    if not isinstance(park, bool):
        raise ValidationError("park", park, "True or False")
    kept = None if error is None else kept_error(error)
    return call(
        "release",
        "select penstock.release(%s, %s, %s, %s, %s, %s)",
        (claim.group_id, claim.offset_id, claim.token, timedelta(seconds=delay), kept, park),
        lambda _: None,
        group_id=claim.group_id,
    )


def extend(context: LogContext, claim: Claim, lease: float) -> Operation[None]:
    """Keep a claim for another lease."""
    _check_claim(claim)
    return call(
        "extend",
        "select penstock.extend(%s, %s, %s, %s)",
        (claim.group_id, claim.offset_id, claim.token, as_lease(lease)),
        lambda _: None,
        group_id=claim.group_id,
    )


def partition_attributes(partition_by: str | Sequence[str]) -> list[str]:
    """Return the checked names of the attributes of a partition, in order."""
    wanted: Iterable[str] = [partition_by] if isinstance(partition_by, str) else partition_by
    if not isinstance(wanted, Iterable):
        raise ValidationError("partition_by", partition_by, "an attribute, or a list of them")
    names = list(wanted)
    for name in names:
        check_text("partition_by", name)
    if not 1 <= len(set(names)) <= MOST_ATTRIBUTES:
        raise ValidationError("partition_by", partition_by, f"1 to {MOST_ATTRIBUTES} attributes")
    return sorted(set(names))


def check_batch_size(batch_size: int) -> None:
    """Refuse a number of messages that no claim can have."""
    if check_position("batch_size", batch_size, 1) >= 2**31:
        raise ValidationError("batch_size", batch_size, "less than 2,147,483,648")


def check_order(order: str) -> None:
    """Refuse an order that is none."""
    if order not in get_args(ClaimOrder):
        raise ValidationError("order", order, "'oldest' or 'round_robin'")


def as_lease(seconds: float) -> timedelta:
    """Return a checked lease."""
    if not isinstance(seconds, int | float) or not 0 < seconds <= 86_400:
        raise ValidationError("lease", seconds, "above 0 and at most 86400 seconds")
    return timedelta(seconds=seconds)


def _check_claim(claim: Claim) -> None:
    if not isinstance(claim, Claim):
        raise ValidationError("claim", claim, "what claim_next() returned")


def _readable(
    context: LogContext, rows: list[Row]
) -> tuple[list[RecordedMessage], DecodingError | None]:
    """Return the messages up to one that cannot be read, and what is wrong with that.

    Whatever an interceptor raises is told so, too: the partition is claimed by now, and whoever has
    claimed it has to learn of that.
    """
    with suppress(Exception):
        return context.decode(rows), None
    messages: list[RecordedMessage] = []
    for row in rows:
        try:
            messages += context.decode([row])
        except DecodingError as error:
            return messages, error
        except Exception as error:
            _, stream_name, _, position, global_position, *_ = row
            reason = first_line(error)
            return messages, DecodingError(stream_name, position, global_position, reason)
    return messages, None


def _conditions(compound: list[dict[str, dict[str, list[str]]]]) -> tuple[QueryCondition, ...]:
    return tuple(
        QueryCondition(str(one["type"]), name, value)
        for one in compound
        for name, values in sorted(one["attributes"].items())
        for value in values
    )
