"""Claims on the partitions of a consumer group: claim the next one, acknowledge it, release it.

The mechanism is described in `sql/penstock/33_groups.sql`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, LiteralString, get_args
from uuid import UUID

import msgspec

from penstock.database.arrays import text_array
from penstock.database.operation import Operation, Row, Statement, Stubs, call, only_value
from penstock.database.waiters import of_group
from penstock.errors import DecodingError, InvalidAck, ValidationError, first_line
from penstock.log.boundary import MessageType, check_types
from penstock.log.context import LogContext, check_position
from penstock.log.guard import Guard, ranges_of
from penstock.loops.durations import Duration, seconds
from penstock.loops.failure_policy import kept_error
from penstock.message import RecordedMessage, check_text
from penstock.message.conditions import QueryCondition
from penstock.message.typed import type_name

#: which partition a claim gets, see `claim_next`
ClaimOrder = Literal["oldest", "round_robin"]

LONGEST_LEASE = 86_400.0  # seconds
_CLAIM: LiteralString = (
    "select * from penstock.claim_next(%s, %s::text[], %s::text[], %s, %s, %s, %s)"
)
#: does not wait until the claim is on disk
_CLAIM_ALONE: LiteralString = (
    "select c.* from set_config('synchronous_commit', 'off', true),"
    " penstock.claim_next(%s, %s::text[], %s::text[], %s, %s, %s, %s) c"
)
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
    #: the unhandled messages of the partition, oldest first
    messages: list[RecordedMessage]
    #: covers all messages of the partition that are visible now, whether claimed or not
    guard: Guard
    token: UUID
    #: whether these messages were handled before the group was reset
    replaying: bool
    #: how often the partition was claimed since its last ack
    attempts: int
    #: why the message after these cannot be decoded, if it cannot; `messages` may be empty then
    undecodable: DecodingError | None = None
    _last: int | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Keep what to acknowledge, also if a handler empties the list of messages."""
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
    partition_by: str | Sequence[str],
    handled_types: Sequence[MessageType],
    worker_id: str,
    batch_size: int,
    lease: Duration,
    order: ClaimOrder,
    *,
    durable: bool = True,
) -> Operation[Claim | None]:
    """Claim the next partition. A worker runs the same operation again and again.

    A claim that is made alone need not be `durable`: if a crash of the server undoes it, the
    partition is claimed again, and the messages of the first claim cannot be acknowledged.
    """
    check_text("group_id", group_id)
    check_types(handled_types)
    types = list(dict.fromkeys(type_name(one) for one in handled_types))
    for one in types:
        check_text("handled_types", one)
    check_text("worker_id", worker_id)
    if check_position("batch_size", batch_size, 1) >= 2**31:
        raise ValidationError("batch_size", batch_size, "less than 2,147,483,648")
    if order not in get_args(ClaimOrder):
        raise ValidationError("order", order, "'oldest' or 'round_robin'")

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
            Guard(_conditions(claim["conditions"]), claim["low"], ranges_of(claim["seen"])),
            UUID(claim["token"]),
            claim["replaying"],
            claim["attempts"],
            undecodable,
        )

    return call(
        "claim_next",
        _CLAIM if durable else _CLAIM_ALONE,
        (
            group_id,
            text_array(partition_attributes(partition_by)),
            text_array(types),
            worker_id,
            batch_size,
            timedelta(seconds=checked_lease(lease)),
            order,
        ),
        decode,
        group_id=group_id,
    ).with_archive(Stubs(1, context.lake_options, lambda rows: _not_claimed(group_id, rows)))


def _not_claimed(group_id: str, rows: list[Row]) -> Statement:
    """Return what gives back a claim whose messages cannot be read: others go first."""
    claim = rows[0][0]
    sql: LiteralString = "select penstock.release(%s, %s, %s, '1 second')"
    return Statement(sql, (group_id, claim["offset_id"], claim["token"]))


def ack(claim: Claim, position: int | None) -> Operation[None]:
    """Mark a partition as handled up to a position, and give it back."""
    _check_claim(claim)
    until = claim.last_position if position is None else check_position("position", position)
    if until > claim.last_position:
        raise InvalidAck(claim.group_id, until, claim.last_position)
    return _on_claim(claim, "ack", "select penstock.ack(%s, %s, %s, %s)", until, claim.token)


def release(claim: Claim, *, delay: Duration, error: str | None, park: bool) -> Operation[None]:
    """Give a partition back unhandled."""
    _check_claim(claim)
    pause = timedelta(seconds=seconds("delay", delay))
    if not isinstance(park, bool):
        raise ValidationError("park", park, "True or False")
    kept = None if error is None else kept_error(error)
    sql: LiteralString = "select penstock.release(%s, %s, %s, %s, %s, %s)"
    released = _on_claim(claim, "release", sql, claim.token, pause, kept, park)
    return msgspec.structs.replace(released, notifies=frozenset([of_group(claim.group_id)]))


def extend(claim: Claim, lease: Duration) -> Operation[None]:
    """Keep a claim for another lease."""
    _check_claim(claim)
    length = timedelta(seconds=checked_lease(lease))
    return _on_claim(claim, "extend", "select penstock.extend(%s, %s, %s, %s)", claim.token, length)


def next_due(group_id: str) -> Operation[float | None]:
    """Return in how many seconds the next lease or delay of a partition of the group ends."""
    return call(
        "next_due",
        "select extract(epoch from min(s.due) - clock_timestamp())::float8"
        " from penstock.partition_states s"
        " where s.group_pk = (select g.id from penstock.consumer_groups g where g.group_id = %s)"
        " and s.due > now()",
        (group_id,),
        only_value,
        group_id=group_id,
    )


def _on_claim(claim: Claim, name: str, sql: LiteralString, *arguments: object) -> Operation[None]:
    sent = (claim.group_id, claim.offset_id, *arguments)
    return call(name, sql, sent, lambda _: None, group_id=claim.group_id)


def partition_attributes(partition_by: str | Sequence[str]) -> list[str]:
    """Return the checked names of the attributes of a partition, in order."""
    if not isinstance(partition_by, Iterable):
        raise ValidationError("partition_by", partition_by, "an attribute, or a list of them")
    names = [partition_by] if isinstance(partition_by, str) else partition_by
    attributes = sorted({check_text("partition_by", name) for name in names})
    if not 1 <= len(attributes) <= MOST_ATTRIBUTES:
        raise ValidationError("partition_by", partition_by, f"1 to {MOST_ATTRIBUTES} attributes")
    return attributes


def checked_lease(lease: Duration) -> float:
    """Return a lease in seconds."""
    return seconds("lease", lease, least=0.001, most=LONGEST_LEASE)


def _check_claim(claim: Claim) -> None:
    if not isinstance(claim, Claim):
        raise ValidationError("claim", claim, "a Claim that claim_next() returned")


def _readable(
    context: LogContext, rows: list[Row]
) -> tuple[list[RecordedMessage], DecodingError | None]:
    """Return the messages before the first that cannot be decoded, and the error of that one.

    An error that an interceptor raises is returned too: the partition is claimed by now, so the
    caller has to get the claim.
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
