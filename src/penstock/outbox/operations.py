"""The operations on outbox messages.

The mechanism is described in `sql/penstock/40_outbox.sql`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, LiteralString, TypeVar
from uuid import UUID

import msgspec

from penstock.database.arrays import text_array
from penstock.database.operation import Operation, call, only_value
from penstock.database.waiters import OUTBOX, of_topic
from penstock.errors import StaleLease, ValidationError
from penstock.log.context import check_position
from penstock.loops.durations import YEAR, Duration, seconds
from penstock.loops.failure_policy import kept_error
from penstock.message import as_uuid, check_text
from penstock.outbox.messages import (
    STATES,
    WAIT_TOPIC,
    ClaimedMessage,
    NewMessage,
    OutboxMessage,
    OutboxMessageId,
    TopicState,
    as_row,
    from_row,
)

Claimed = ClaimedMessage | Iterable[ClaimedMessage]
#: on messages of one claim; the result is the ids whose leases had ended
OnClaim = Operation[list[OutboxMessageId]]
Item = TypeVar("Item")

# seconds
SHORTEST_LEASE = 0.001
LONGEST_LEASE = 10 * YEAR
LONGEST_AGE = 1000 * YEAR

#: of the table, in the order of `OutboxMessage`; another client may have put any moment there
_COLUMNS = (
    "id, topic, payload, encoding, state, penstock.readable_moment(due), correlation_id,"
    " dedupe_key, owner, penstock.readable_moment(lease_until), attempts, last_error,"
    " penstock.readable_moment(created_at), penstock.readable_moment(finished_at)"
)

_CLAIM: LiteralString = "select * from penstock.claim_outbox(%s, %s::text[], %s, %s, %s, %s)"
#: does not wait until the claim is on disk
_CLAIM_ALONE: LiteralString = (
    "select c.* from set_config('synchronous_commit', 'off', true),"
    " penstock.claim_outbox(%s, %s::text[], %s, %s, %s, %s) c"
)

#: written out, so that the planner can use the indexes of one state
_IN_STATE: Mapping[str, LiteralString] = {one: f" and state = '{one}'" for one in STATES}


def enqueue(
    messages: Iterable[NewMessage], joins: Iterable[UUID | str] = ()
) -> Operation[list[OutboxMessageId]]:
    """Put messages into the outbox; the result is their ids."""
    rows = [as_row(one) for one in _listed("messages", messages)]
    if not rows:
        raise ValidationError("messages", rows, "at least one message")
    columns = [list(column) for column in zip(*rows, strict=True)]
    known = [as_uuid(one) for one in _listed("joins", joins)]
    return call(
        "enqueue",
        "select penstock.enqueue(%s::uuid[], %s::text[], %s::bytea[], %s::text[],"
        " %s::timestamptz[], %s::text[], %s::text[], %s::uuid[])",
        (*columns, known),
        only_value,
        notifies=frozenset(
            of_topic(topic) for topic in [*columns[1], *([WAIT_TOPIC] if known else [])]
        ),
        count=len(rows),
    )


def claim(
    owner: str,
    limit: int,
    lease: Duration,
    topics: Iterable[str] | None = None,
    start: tuple[datetime | None, UUID | None] = (None, None),
    *,
    durable: bool = True,
) -> Operation[list[ClaimedMessage]]:
    """Claim due messages, oldest first, of these topics or of all; from (due, id) `start` on.

    A claim that is made alone need not be `durable`: if a crash of the server undoes it, the
    messages are claimed again, and those of the first claim cannot be acknowledged.
    """
    check_text("owner", owner)
    check_limit(limit)
    return call(
        "claim",
        _CLAIM if durable else _CLAIM_ALONE,
        (owner, _checked_topics(topics), limit, as_interval("lease", lease), *start),
        lambda rows: sorted(
            (from_row(ClaimedMessage, row) for row in rows), key=lambda one: (one.due, one.id)
        ),
        owner=owner,
        from_start=start[0] is None,
    )


def _checked_topics(topics: Iterable[str] | None) -> str | None:
    if topics is None:
        return None
    checked = [check_text("topic", one) for one in _listed("topics", topics)]
    if not checked:
        raise ValidationError("topics", checked, "at least one topic, or None for all")
    return text_array(checked)


def acknowledge(messages: Claimed) -> list[OnClaim]:
    """Finish messages as done."""
    return _by_claim("ack", "select penstock.finish_outbox(%s::uuid[], %s, 'done')", messages)


def fail(messages: Claimed, error: str) -> list[OnClaim]:
    """Finish messages as failed."""
    sql: LiteralString = "select penstock.finish_outbox(%s::uuid[], %s, 'failed', %s)"
    return _by_claim("fail", sql, messages, kept_error(error))


def abandon(messages: Claimed, delay: Duration, error: str | None) -> list[OnClaim]:
    """Give messages back, to be claimed again after a delay."""
    sql: LiteralString = "select penstock.abandon_outbox(%s::uuid[], %s, %s, %s)"
    kept = None if error is None else kept_error(error)
    return _by_claim("abandon", sql, messages, as_interval("delay", delay, least=0), kept)


def give_back(messages: Claimed) -> list[OnClaim]:
    """Give messages back without an attempt used."""
    sql: LiteralString = "select penstock.abandon_outbox(%s::uuid[], %s, null, null, false)"
    return _by_claim("abandon", sql, messages)


def extend(messages: Claimed, lease: Duration) -> list[OnClaim]:
    """Hold messages for another lease."""
    sql: LiteralString = "select penstock.extend_outbox(%s::uuid[], %s, %s)"
    return _by_claim("extend", sql, messages, as_interval("lease", lease))


def _by_claim(name: str, sql: LiteralString, messages: Claimed, *arguments: Any) -> list[OnClaim]:
    tokens: dict[UUID, list[UUID]] = {}
    several = [messages] if isinstance(messages, ClaimedMessage) else _listed("messages", messages)
    for one in several:
        if not isinstance(one, ClaimedMessage):
            raise ValidationError("message", one, "a message that claim() returned")
        tokens.setdefault(one.token, []).append(one.id)
    given_back = several if name == "abandon" else ()
    notifies = frozenset(of_topic(one.topic) for one in given_back)
    return [
        call(name, sql, (ids, token, *arguments), only_value, notifies=notifies, count=len(ids))
        for token, ids in tokens.items()
    ]


def waking_joins(finished: Iterable[OnClaim]) -> list[OnClaim]:
    """Let dispatchers look whether the last step of a join was finished.

    A dispatcher that finishes messages looks for more by itself.
    """
    return [
        msgspec.structs.replace(one, notifies=frozenset([of_topic(WAIT_TOPIC)])) for one in finished
    ]


def refuse_stale(results: Iterable[list[OutboxMessageId]]) -> None:
    """Raise `StaleLease` if these results of operations on claims contain an id."""
    stale = tuple(str(id) for ids in results for id in ids)
    if stale:
        raise StaleLease(stale)


def report_unhandled(
    owner: str, topics: Iterable[str], overdue: float
) -> Operation[list[tuple[str, datetime]]]:
    """Find other topics with messages due for longer than `overdue` seconds, and since when."""
    return call(
        "report_unhandled",
        "select * from penstock.report_unhandled(%s::text[], %s, %s)",
        (text_array(topics), owner, as_interval("overdue", overdue, least=0)),
        list,
        owner=owner,
    )


def next_due(topics: Iterable[str]) -> Operation[float | None]:
    """Return in how many seconds the next message of these topics is due, or a lease ends.

    Both are in the future, so dead index entries of messages that were due before are not read.
    """
    return call(
        "next_due",
        "select extract(epoch from least("
        " (select min(r.due) from unnest(%s::text[]) as t(topic) cross join lateral ("
        " select o.due from penstock.outbox o"
        " where o.state = 'ready' and o.topic = t.topic and o.due > now()"
        " order by o.due, o.id limit 1) r),"
        " (select o.lease_until from penstock.outbox o"
        " where o.state = 'in_progress' and o.lease_until > now()"
        " order by o.lease_until limit 1)) - clock_timestamp())::float8",
        (text_array(topics),),
        only_value,
    )


def reap() -> Operation[int]:
    """Make messages ready whose lease has ended."""
    return call("reap_expired", "select penstock.reap_outbox()", (), only_value)


def get(id: UUID | str) -> Operation[OutboxMessage | None]:
    """Look up one message."""
    return call(
        "get",
        f"select {_COLUMNS} from penstock.outbox where id = %s",  # noqa: S608
        (as_uuid(id),),
        lambda rows: from_row(OutboxMessage, rows[0]) if rows else None,
    )


def listing(topic: str | None, state: str | None, limit: int) -> Operation[list[OutboxMessage]]:
    """List messages, oldest first."""
    if state is not None and state not in STATES:
        raise ValidationError("state", state, f"one of {', '.join(STATES)}")
    by_topic: LiteralString = "" if topic is None else " and topic = %s"
    by_state: LiteralString = "" if state is None else _IN_STATE[state]
    return call(
        "list",
        f"select {_COLUMNS} from penstock.outbox where true{by_topic}{by_state}"  # noqa: S608
        " order by created_at, id limit %s",
        (*([] if topic is None else [check_text("topic", topic)]), check_limit(limit)),
        lambda rows: [from_row(OutboxMessage, row) for row in rows],
    )


def retry_failed(ids: Sequence[UUID | str] | None, topic: str | None) -> Operation[int]:
    """Make failed messages ready again."""
    if topic is not None:
        check_text("topic", topic)
    wanted = None if ids is None else [as_uuid(one) for one in _listed("ids", ids)]
    return call(
        "retry_failed",
        "select penstock.retry_outbox(%s::uuid[], %s)",
        (wanted, topic),
        only_value,
        notifies=frozenset([OUTBOX]),
    )


def clean_up(older_than: Duration, batch_size: int, failed: bool) -> Operation[tuple[int, int]]:
    """Remove a batch of finished messages and of finished joins; the result is how many of each."""
    age = timedelta(seconds=seconds("older_than", older_than, most=LONGEST_AGE))
    if not isinstance(failed, bool):
        raise ValidationError("failed", failed, "True or False")
    return call(
        "clean_up",
        "select penstock.clean_outbox(b.before, %s, %s), penstock.clean_joins(b.before, %s)"
        " from (values (clock_timestamp() - %s)) as b(before)",
        (check_limit(batch_size, "batch_size"), failed, batch_size, age),
        lambda rows: rows[0],
    )


def summary() -> Operation[list[TopicState]]:
    """Count messages by topic and state."""
    return call(
        "outbox_summary",
        "select * from penstock.outbox_summary()",
        (),
        lambda rows: [TopicState(*row) for row in rows],
    )


def as_interval(name: str, duration: Duration, least: float = SHORTEST_LEASE) -> timedelta:
    """Return a checked duration, as psycopg sends it."""
    return timedelta(seconds=seconds(name, duration, least=least, most=LONGEST_LEASE))


def check_limit(limit: int, name: str = "limit") -> int:
    """Return a checked limit."""
    if check_position(name, limit, 1) >= 2**31:
        raise ValidationError(name, limit, "less than 2,147,483,648")
    return limit


def _listed(name: str, several: Iterable[Item]) -> list[Item]:
    if isinstance(several, str | bytes) or not isinstance(several, Iterable):
        raise ValidationError(name, several, "an iterable, such as a list")
    return list(several)
