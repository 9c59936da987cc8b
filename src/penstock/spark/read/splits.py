"""Cutting a range of messages into pieces that have about as many messages each.

Where a cut lies decides how evenly tasks are loaded, and nothing else: the pieces cover the range
whatever they hold. So a long range is not counted. A few thousand rows are looked at that lie
evenly spaced in the table's file, whose blocks are filled in about the order of positions; each of
them stands for the rows around it. What is short, or so rare that too few of its rows are met, is
counted in the index.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Any

import psycopg
from psycopg import sql

from penstock.spark.read.target import Target

#: below this a piece is not worth a task of its own
SMALLEST_PIECE = 10_000
#: a range of so many positions is counted in less time than it takes to think about it
SHORT = 50_000
#: rows looked at for each piece, and how many of them have to be in the range
LOOKS, ENOUGH = 512, 16
#: and no more than so many for all of them: else counting is as quick
MOST_LOOKS = 32_768
#: so that more pieces than these could not be told apart
MOST_PIECES = MOST_LOOKS // ENOUGH
# The size of the table, and how many messages a block has: by the statistics, or about so many.
_TABLE = """
select pg_relation_size(oid) / current_setting('block_size')::int,
  coalesce(nullif(reltuples, -1) / nullif(relpages, 0), 20)
from pg_class where oid = 'message_store.messages'::regclass
"""
_BY_PLACE = (
    "set local enable_sort = on; set local enable_seqscan = off; set local enable_indexscan = off;"
    " set local enable_indexonlyscan = off; set local enable_bitmapscan = off"
)

_NOTHING: tuple[int, list[int]] = (0, [])

Connection = psycopg.Connection[Any]


@dataclass(frozen=True)
class Piece:
    """A part of a read: the messages after one number and up to another."""

    after: int
    until: int


def pieces(
    connection: Connection, target: Target, after: int, until: int, most: int
) -> list[Piece]:
    """Cut a range into at most so many pieces that have about as many messages each."""
    if after >= until:
        return []
    most = min(most, MOST_PIECES)
    rows = target.rows(after, until, filtered=False)
    steps = 8 * most  # finer than the pieces, since fewer may be wanted
    cuts = sql.SQL("select count(*), percentile_disc({}::float8[]) within group (order by {}) {}")
    query = cuts.format([number / steps for number in range(1, steps)], target.axis, rows)
    count, found = _NOTHING
    if not target.attributes and until - after > SHORT:
        count, found = _sampled(connection, query, most)
    if not count:
        count, found = _counted(connection, query)
    if not count:
        return []
    wanted = min(most, max(1, count // SMALLEST_PIECE))
    inner = [found[round(number * steps / wanted) - 1] for number in range(1, wanted)]
    return _between(after, inner, until)


def _counted(connection: Connection, query: sql.Composed) -> tuple[int, list[int]]:
    with connection.transaction():
        connection.execute("set local enable_sort = on; set local enable_seqscan = off")
        return connection.execute(query).fetchone() or _NOTHING


def _sampled(connection: Connection, query: sql.Composed, most: int) -> tuple[int, list[int]]:
    """Return about how many messages there are, and cuts; 0 if too few of them were met."""
    blocks, per_block = connection.execute(_TABLE).fetchone() or (0, 0)
    looks = min(LOOKS * most, MOST_LOOKS, blocks)
    chance = Random(blocks)  # within a block: the log may have a rhythm, and so would the looks
    slots = max(1, int(per_block))
    spots = [f"({n * blocks // looks},{chance.randint(1, slots)})" for n in range(looks)]
    looked = query + sql.SQL(" and m.ctid = any ({}::tid[])").format(spots)
    with connection.transaction():
        connection.execute(_BY_PLACE)
        met, found = connection.execute(looked).fetchone() or _NOTHING
    if met < ENOUGH * most:
        return _NOTHING
    return int(met * per_block * blocks / looks), found


def _between(after: int, inner: Iterable[int], until: int) -> list[Piece]:
    bounds = [after, *dict.fromkeys(one for one in inner if after < one < until), until]
    return [Piece(low, high) for low, high in pairwise(bounds)]
