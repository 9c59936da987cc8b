"""Planning a read, on the driver: up to where, and cut into which pieces.

Everything here looks at indexes only. The end of a read is the last message that is complete below
the watermark, so what lies at or below it never changes; it is taken in one statement and the rest
is read in later ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import psycopg
from psycopg import sql

from penstock.errors import MessagesRemoved, UndeclaredType
from penstock.pipeline.connections import not_installed
from penstock.pipeline.target import Target

#: below this a piece is not worth a task of its own
SMALLEST_PIECE = 10_000

Connection = psycopg.Connection[Any]


@dataclass(frozen=True)
class Piece:
    """A part of a read: the messages after one number and up to another."""

    after: int
    until: int


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


def pieces(
    connection: Connection, target: Target, after: int, until: int, most: int
) -> list[Piece]:
    """Cut a range into at most so many pieces that have about as many messages each."""
    if after >= until:
        return []
    steps = 8 * most  # finer than the pieces, since fewer may be wanted
    fractions = [number / steps for number in range(1, steps)]
    cuts = sql.SQL(
        "select count(*), percentile_disc({fractions}::float8[]) within group (order by {axis})"
        " {rows}"
    ).format(fractions=fractions, axis=target.axis, rows=target.rows(after, until, filtered=False))
    with connection.transaction():
        connection.execute("set local enable_sort = on")
        connection.execute("set local enable_seqscan = off")
        count, found = connection.execute(cuts).fetchone() or (0, [])
    if not count:
        return []
    wanted = min(most, max(1, count // SMALLEST_PIECE))
    inner = [found[round(number * steps / wanted) - 1] for number in range(1, wanted)]
    return _between(after, inner, until)


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


def _between(after: int, inner: Iterable[int], until: int) -> list[Piece]:
    bounds = [after, *dict.fromkeys(one for one in inner if after < one < until), until]
    return [Piece(low, high) for low, high in pairwise(bounds)]


def _one(cursor: psycopg.Cursor[Any]) -> Any:
    row = cursor.fetchone()
    return None if row is None else row[0]
