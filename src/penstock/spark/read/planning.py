"""Planning a read, on the driver: what can be read, and up to where.

Everything here looks at indexes only. The end of a read is the last message that is complete below
the watermark, so what lies at or below it never changes; it is taken in one statement and the rest
is read in later ones.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

from penstock.errors import LogChanged, MessagesRemoved, OffsetBeyondEnd, UndeclaredType
from penstock.spark.connections import not_installed
from penstock.spark.read.target import Target

Connection = psycopg.Connection[Any]
#: `position`; and since 0.2 the `id` of the message there, and `log`, the incarnation of the log
Offset = dict[str, Any]


def prepare(connection: Connection, target: Target, where: str) -> Target:
    """Check that the database can be read completely; find out which types have the attributes."""
    ready = connection.execute("select to_regprocedure('penstock.watermark()') is not null")
    if not _one(ready):
        raise not_installed(where)
    connection.execute("set enable_sort = off")  # rows come from the index in its order
    if not target.attributes:
        return target
    names = [name for name, _ in target.attributes]
    declared = connection.execute(
        "select type, attributes from penstock.message_types"
        " where attributes && %s::text[] and (%s::text[] = '{}' or type = any (%s::text[]))",
        (names, list(target.types), list(target.types)),
    ).fetchall()
    if not declared:
        raise UndeclaredType(", ".join(target.types) or f"with any of {', '.join(names)}")
    prepared = target.with_conditions(declared)
    connection.execute("select penstock.check_conditions(%s::jsonb)", (prepared.conditions,))
    return prepared


def head(connection: Connection, target: Target) -> int:
    """Return the number of the last message that a reader may rely on."""
    return int(_one(connection.execute(target.head())))


def end(connection: Connection, target: Target) -> int:
    """Return the number that no offset of a reader exceeds: the end of the stream or the log."""
    if target.stream:
        return head(connection, target)
    return int(_one(connection.execute("select penstock.complete_to()")))


def offset(connection: Connection, target: Target, position: int) -> Offset:
    """Return the offset at a position, with what tells whether the log is still the same."""
    found = sql.SQL(
        "select (select m.id from message_store.messages m where {at}), l.incarnation"
        " from penstock.log_identity() l"
    ).format(at=target.at(position))
    id, incarnation = connection.execute(found).fetchone() or (None, None)
    return {
        "position": position,
        **({} if id is None else {"id": str(id)}),
        "log": str(incarnation),
    }


def check_offset(connection: Connection, target: Target, offset: Offset) -> None:
    """Raise if an offset is beyond the end, or the log does not hold its message any more."""
    position, id = int(offset["position"]), offset.get("id")
    if position <= target.before_first:
        return
    held = connection.execute(
        "select penstock.still_holds(%s, %s, %s, %s)",
        (target.stream or target.category or "$all", position, id, offset.get("log")),
    )
    same = _one(held)
    if same and id is not None:
        return
    last = end(connection, target)
    if position > last:
        raise OffsetBeyondEnd(target.label, position, last)
    if not same:
        raise LogChanged(position, target.label, id or "unknown")


def end_after(connection: Connection, target: Target, after: int, until: int, most: int) -> int:
    """Return the number of the `most`-th message after another, or of the last up to `until`."""
    page = sql.SQL("select {axis} as at {rows} order by {order} limit {most}").format(
        axis=target.axis,
        rows=target.rows(after, until, filtered=False),
        order=target.order,
        most=most,
    )
    found = _one(connection.execute(sql.SQL("select max(at) from ({}) p").format(page)))
    return after if found is None else int(found)


def check_nothing_removed(connection: Connection, target: Target, after: int, until: int) -> None:
    """Raise if retention removed messages in this range, which nobody can read any more."""
    count = 0 if target.attributes else count_removed(connection, target, after, until)
    if count > 0:
        raise MessagesRemoved(target.label, after, count)


def count_removed(connection: Connection, target: Target, after: int, until: int) -> int:
    """Return how many messages of a category or stream retention removed there, at most."""
    if target.stream:
        oldest = connection.execute(
            "select coalesce(min(position), %(until)s) from message_store.messages"
            " where stream_name = %(stream)s and position > %(after)s",
            {"stream": target.stream, "after": after, "until": until + 1},
        )
        return int(min(_one(oldest), until + 1) - after - 1)
    missed = connection.execute(
        "select penstock.missed(%s, %s, %s)", (target.category, after, until + 1)
    )
    return int(_one(missed))


def _one(cursor: psycopg.Cursor[Any]) -> Any:
    row = cursor.fetchone()
    return None if row is None else row[0]
