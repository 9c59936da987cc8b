"""Splitting a range of messages into parts with about as many messages each.

Where a split ends decides only how evenly tasks are loaded: the splits cover the range whatever
they hold. So a long range is not counted. Instead a few thousand rows are sampled, evenly spaced
in the table's file, whose blocks are filled in about the order of positions; each sampled row
represents the rows around it. A short range, or one with too few sampled rows, is counted in the
index. Of archived messages the metadata of their files says how many there are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from random import Random

from psycopg import sql

from penstock.database.operation import Operation, Row, Statement, call
from penstock.lake.archive_range import ArchiveFile
from penstock.spark.connections import Connection, run
from penstock.spark.target import Target

#: fewer messages than this are not worth a task of their own
SMALLEST_SPLIT = 10_000
#: a range of so many positions is counted in less time than sampling takes
SHORT_RANGE = 50_000
#: rows sampled for each split, and how many of them have to be in the range
SAMPLES, ENOUGH_SAMPLES = 512, 16
#: rows sampled at most: with more, counting is as quick
MOST_SAMPLES = 32_768
#: with more splits than this, each would have too few samples
MOST_SPLITS = MOST_SAMPLES // ENOUGH_SAMPLES

_COUNT_SETTINGS = Statement(
    "select set_config('enable_sort', 'on', true), set_config('enable_seqscan', 'off', true)"
)
#: the rows of the sample are fetched by their place in the file, and by no index
_SAMPLE_SETTINGS = Statement("""
select set_config('enable_sort', 'on', true),
  set_config(name, 'off', true)
from unnest(array['enable_seqscan', 'enable_indexscan', 'enable_indexonlyscan',
  'enable_bitmapscan']) as setting(name)
""")
#: about how many messages a range has, and the numbers that divide it evenly
Quantiles = tuple[int, list[int]]


@dataclass(frozen=True)
class Split:
    """A part of a read: the messages after one number and up to another."""

    after: int
    until: int


def find_splits(
    connection: Connection,
    target: Target,
    after: int,
    until: int,
    most: int,
    files: Sequence[ArchiveFile] = (),
) -> list[Split]:
    """Split a range into at most so many parts that have about as many messages each.

    `files` are those of the archive that the range reaches into: their messages count as if they
    were evenly spaced in their file.
    """
    if after >= until:
        return []
    most = min(most, MOST_SPLITS)
    steps = 8 * most  # finer than the splits, since fewer may be wanted
    query = sql.SQL(
        "select count(*), percentile_disc({}::float8[]) within group (order by {}) {}"
    ).format(
        [number / steps for number in range(1, steps)],
        target.axis,
        target.positions(after, until, filtered=False),
    )
    is_long = not target.attributes and until - after > SHORT_RANGE
    found = _sampled(connection, query, most) if is_long else None
    count, quantiles = found or run(connection, count_rows(query))
    if files:
        count, quantiles = _with_files(count, quantiles, target, after, until, files, steps)
    if not count:
        return []
    wanted = min(most, max(1, count // SMALLEST_SPLIT))
    inner = [quantiles[round(number * steps / wanted) - 1] for number in range(1, wanted)]
    bounds = [after, *dict.fromkeys(one for one in inner if after < one < until), until]
    return [Split(low, high) for low, high in pairwise(bounds)]


def _with_files(
    count: int,
    quantiles: list[int],
    target: Target,
    after: int,
    until: int,
    files: Sequence[ArchiveFile],
    steps: int,
) -> Quantiles:
    """Return about how many messages there are with those of files, and quantiles of all."""
    if target.stream:  # a split of its own would search all of the files: the first one does
        return max(count, 1), quantiles
    weighted = [(one, count / steps) for one in (*quantiles, until) if count]
    for file in files:
        low, high = max(file.low, after + 1), min(file.high, until)
        share = file.message_count * (high - low + 1) / (file.high - file.low + 1)
        weighted += [
            (low + (high - low) * number // steps, share / steps) for number in range(1, steps + 1)
        ]
    weighted.sort()
    total = sum(weight for _, weight in weighted)
    sums = list(accumulate(weight for _, weight in weighted))
    found = [
        weighted[min(bisect_left(sums, total * number / steps), len(sums) - 1)][0]
        for number in range(1, steps)
    ]
    return max(int(total), 1), found


def count_rows(query: sql.Composed) -> Operation[Quantiles]:
    """Count a range, in the index."""
    return Operation("count_rows", (_COUNT_SETTINGS, Statement(query, None)), _quantiles)


def sample_rows(query: sql.Composed, rows: list[str]) -> Operation[Quantiles]:
    """Look at some rows of the table, and count those in the range."""
    sampled = query + sql.SQL(" and m.ctid = any ({}::tid[])").format(rows)
    return Operation("sample_rows", (_SAMPLE_SETTINGS, Statement(sampled, None)), _quantiles)


def table_size() -> Operation[Row]:
    """Find how many blocks the table has, and how many messages a block has, about."""
    query = """
        select pg_relation_size(oid) / current_setting('block_size')::int,
          coalesce(nullif(reltuples, -1) / nullif(relpages, 0), 20)
        from pg_class where oid = 'message_store.messages'::regclass
    """
    return call("table_size", query, (), lambda rows: rows[0])


def _sampled(connection: Connection, query: sql.Composed, most: int) -> Quantiles | None:
    """Return about how many messages there are, and quantiles; None if the sample has too few."""
    blocks, per_block = run(connection, table_size())
    samples = min(SAMPLES * most, MOST_SAMPLES, blocks)
    slots = max(1, int(per_block))
    # evenly spaced; random within a block, since a log may be periodic
    chance = Random(blocks)
    rows = [f"({n * blocks // samples},{chance.randint(1, slots)})" for n in range(samples)]
    count, quantiles = run(connection, sample_rows(query, rows))
    if count < ENOUGH_SAMPLES * most:
        return None
    return int(count * per_block * blocks / samples), quantiles


def _quantiles(rows: list[Row]) -> Quantiles:
    count, quantiles = rows[0]
    return count, quantiles or []
