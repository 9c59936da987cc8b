"""Planning a read, on the driver: what can be read, and up to where.

These operations use indexes only. A read ends at the last message that is complete below the
watermark, so nothing at or below the end can change. One statement finds the end, and later
statements read the rows.

Archived messages count like others. Where an operation meets the archive, the statement returns its
location, and the positions there are read from the files when its rows are decoded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from psycopg import sql

from penstock.database.operation import Operation, Row, call, only_value
from penstock.errors import LogChanged, MessagesRemoved, OffsetBeyondEnd, UndeclaredType
from penstock.spark.connections import Connection, not_installed, run
from penstock.spark.read.archive_rows import archive_location, archived_positions, merged_positions
from penstock.spark.target import Target

#: `position`; since 0.2 also the `id` of the message there, and `log`, the log's incarnation
Offset = dict[str, Any]
Result = TypeVar("Result")
#: the first messages of a range: their positions only if there are archived ones among them
_PAGE = """
with archive as materialized (select {location} as location)
select p.count, p.last, a.location, p.positions
from archive a
cross join lateral (
  select count(*) as count, max(m.at) as last,
    array_agg(m.at) filter (where a.location is not null) as positions
  from (select {axis} as at {rows} order by {order} limit {most}) m
) p
"""


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
    if not target.stream:
        return call("head", target.head(), None, only_value)
    # a stream that was named after its only message may be in the archive as a whole
    query = sql.SQL("select h.head, case when h.head < 0 then {} end from ({}) as h(head)").format(
        archive_location(target, target.before_first, 0), target.head()
    )

    def decode(rows: list[Row]) -> int:
        version, location = rows[0]
        if location is None:
            return int(version)
        return int(max(archived_positions(target, -1, 0, location, 1), default=version))

    return call("head", query, None, decode)


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
    unfiltered = replace(target, types=())

    def end(count: int, last: int | None) -> int:
        return after if last is None else last

    return _page("end_after", unfiltered, after, until, limit, end)


def page_after(target: Target, after: int, until: int, limit: int) -> Operation[tuple[int, int]]:
    """Find the same, and how many messages there are up to it."""
    unfiltered = replace(target, types=())

    def page(count: int, last: int | None) -> tuple[int, int]:
        return after if last is None else last, count

    return _page("end_after", unfiltered, after, until, limit, page)


def count_up_to(target: Target, after: int, until: int, most: int) -> Operation[int]:
    """Count the messages of a range, but no further than `most`."""
    return _page("count_messages", target, after, until, most, lambda count, last: count)


def positions_after(target: Target, after: int, until: int, most: int) -> Operation[list[int]]:
    """Return the positions of the first messages of a range, at most so many."""
    query = sql.SQL("select array(select {axis} {rows} order by {order} limit {most}), {location}")

    def decode(rows: list[Row]) -> list[int]:
        positions, location = rows[0]
        if location is None:
            return list(positions)
        archived = archived_positions(target, after, until, location, most)
        return merged_positions(positions, archived, most)

    composed = query.format(**_parts(target, after, until, most))
    return call("positions", composed, None, decode)


def _page(
    name: str,
    target: Target,
    after: int,
    until: int,
    most: int,
    result: Callable[[int, int | None], Result],
) -> Operation[Result]:
    """Count the first messages of a range, and find the number of the last of them."""

    def decode(rows: list[Row]) -> Result:
        count, last, location, positions = rows[0]
        if location is None:
            return result(count, last)
        archived = archived_positions(target, after, until, location, most)
        found = merged_positions(positions if count else (), archived, most)
        return result(len(found), found[-1] if found else None)

    query = sql.SQL(_PAGE).format(**_parts(target, after, until, most))
    return call(name, query, None, decode)


def _parts(target: Target, after: int, until: int, most: int) -> dict[str, Any]:
    return {
        "axis": target.axis,
        "rows": target.positions(after, until),
        "order": target.order,
        "most": most,
        # the index of attributes has those of archived messages, too
        "location": sql.SQL("null::text")
        if target.attributes
        else archive_location(target, after, until),
    }


def check_nothing_removed(connection: Connection, target: Target, after: int, until: int) -> None:
    """Raise if retention removed messages in this range."""
    count = 0 if target.attributes else run(connection, count_removed(target, after, until))
    if count > 0:
        raise MessagesRemoved(target.label, after, count)


def count_removed(target: Target, after: int, until: int) -> Operation[int]:
    """Count the messages of a category or stream that retention removed there, at most.

    0 for a stream of a category that has archived messages: the database cannot tell them apart.
    """
    if target.stream:
        # what is missing of a stream may be in the archive, whether retention removed some or not
        query = sql.SQL(
            "select case when penstock.archived_to(message_store.category({stream})) is null"
            " then least(min(position), {before}) - {after} - 1 else 0 end"
            " from message_store.messages where stream_name = {stream} and position > {after}"
        )
    else:
        query = sql.SQL("select penstock.missed({category}, {after}, {before})")
    composed = query.format(**vars(target), after=after, before=until + 1)
    return call("count_removed", composed, None, only_value)
