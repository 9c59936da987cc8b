"""Planning a read, on the driver: what can be read, and up to where.

These operations use indexes only. A read ends at the last message that is complete below the
watermark, so nothing at or below the end can change. One statement finds the end, and later
statements read the rows.
"""

from __future__ import annotations

from typing import Any

from psycopg import sql

from penstock.database.operation import Operation, Row, call, only_value
from penstock.errors import LogChanged, MessagesRemoved, OffsetBeyondEnd, UndeclaredType
from penstock.spark.connections import Connection, not_installed, run
from penstock.spark.target import Target

#: `position`; since 0.2 also the `id` of the message there, and `log`, the log's incarnation
Offset = dict[str, Any]


def prepare(connection: Connection, target: Target, where: str) -> Target:
    """Set a connection up for planning, and return the target with conditions if it needs them.

    Raises if the database cannot be read completely, or no type declares the attributes.
    """
    if not run(connection, set_up_planner()):
        raise not_installed(where)
    if not target.attributes:
        return target
    declared = run(connection, declared_types(target))
    if not declared:
        names = ", ".join(name for name, _ in target.attributes)
        raise UndeclaredType(", ".join(target.types) or f"with any of {names}")
    prepared = target.with_conditions(declared)
    # raises if an attribute is not indexed for all messages yet
    query = "select penstock.check_conditions(%s::jsonb)"
    run(connection, call("check_conditions", query, (prepared.conditions,), lambda rows: None))
    return prepared


def set_up_planner() -> Operation[bool]:
    """Make a session read rows in an index's order; return whether Penstock is installed."""
    query = (
        "select to_regprocedure('penstock.watermark()') is not null,"
        " set_config('enable_sort', 'off', false)"
    )
    return call("set_up_planner", query, (), only_value)


def declared_types(target: Target) -> Operation[list[Row]]:
    """Find the types that declare one of the attributes, and which attributes each declares."""
    names, types = [name for name, _ in target.attributes], list(target.types)
    query = (
        "select type, attributes from penstock.message_types"
        " where attributes && %s::text[] and (%s::text[] = '{}' or type = any (%s::text[]))"
    )
    return call("declared_types", query, (names, types, types), lambda rows: rows)


def head(target: Target) -> Operation[int]:
    """Find the number of the last message up to which the target is complete."""
    return call("head", target.head(), None, only_value)


def end(target: Target) -> Operation[int]:
    """Find the end of the stream, or of the log: no reader's offset exceeds it."""
    if target.stream:
        return head(target)
    return call("end", "select penstock.complete_to()", (), only_value)


def offset(target: Target, position: int) -> Operation[Offset]:
    """Make the offset at a position, with what identifies the log later."""
    found = sql.SQL(
        "select (select m.id from message_store.messages m where {at}), l.incarnation"
        " from penstock.log_identity() l"
    ).format(at=target.at(position))

    def decode(rows: list[Row]) -> Offset:
        [(id, incarnation)] = rows or [(None, None)]
        known = {} if id is None else {"id": str(id)}
        return {"position": position, **known, "log": str(incarnation)}

    return call("offset", found, None, decode)


def check_offset(connection: Connection, target: Target, offset: Offset) -> None:
    """Raise if an offset is beyond the end, or the log no longer holds its message."""
    position, id = int(offset["position"]), offset.get("id")
    if position <= target.before_first:
        return
    name = target.stream or target.category or "$all"
    arguments = (name, position, id, offset.get("log"))
    query = "select penstock.still_holds(%s, %s, %s, %s)"
    same = run(connection, call("still_holds", query, arguments, only_value))
    if same and id is not None:
        return
    last = run(connection, end(target))
    if position > last:
        raise OffsetBeyondEnd(target.label, position, last)
    if not same:
        raise LogChanged(position, target.label, id or "unknown")


def end_after(target: Target, after: int, until: int, limit: int) -> Operation[int]:
    """Find the number of the `limit`-th message after another, or of the last up to `until`."""
    query = sql.SQL(
        "select coalesce(max(at), {}) from (select {} as at {} order by {} limit {}) p"
    ).format(after, target.axis, target.rows(after, until, filtered=False), target.order, limit)
    return call("end_after", query, None, only_value)


def check_nothing_removed(connection: Connection, target: Target, after: int, until: int) -> None:
    """Raise if retention removed messages in this range."""
    count = 0 if target.attributes else run(connection, count_removed(target, after, until))
    if count > 0:
        raise MessagesRemoved(target.label, after, count)


def count_removed(target: Target, after: int, until: int) -> Operation[int]:
    """Count the messages of a category or stream that retention removed there, at most."""
    if target.stream:
        query = sql.SQL(
            "select least(min(position), {before}) - {after} - 1 from message_store.messages"
            " where stream_name = {stream} and position > {after}"
        )
    else:
        query = sql.SQL("select penstock.missed({category}, {after}, {before})")
    composed = query.format(**vars(target), after=after, before=until + 1)
    return call("count_removed", composed, None, only_value)
