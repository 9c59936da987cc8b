"""A long range is split evenly without being counted; a rare category is counted."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import psycopg
import pytest

from penstock.spark.read.splits import SMALLEST_SPLIT, Split, find_splits
from penstock.spark.target import Target
from tests.conftest import Server

LENGTH = 150_000

# Every fiftieth message is rare; from the middle on every second is late; one stream goes through.
LOG = f"""
insert into message_store.messages (stream_name, type, position, data)
select case when n % 50 = 0 then 'rare-' || n
    when n > {LENGTH} / 2 and n % 2 = 0 then 'late-' || n
    when n % 3 = 0 then 'common-1' else 'common-' || n end,
  'Counted', case when n % 3 = 0 then n else 0 end, jsonb_build_object('n', n)
from generate_series(1, {LENGTH}) n
"""
READ = "select pg_stat_get_xact_blocks_fetched(oid) from pg_class where relname = %s"


@pytest.fixture(scope="module")
def long_log(server: Server) -> Iterator[str]:
    name = server.create_database(server.template("penstock"))
    with psycopg.connect(server.url(name), autocommit=True) as connection:
        connection.execute(LOG.encode())
        connection.execute("vacuum analyze message_store.messages")
    yield server.url(name)
    server.drop_database(name)


@pytest.fixture
def connection(long_log: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection as a planner has it, whose changes are undone."""
    with psycopg.connect(long_log) as connection:
        connection.execute("set enable_sort = off")
        yield connection
        connection.rollback()


def sizes(connection: psycopg.Connection[Any], target: Target, found: list[Split]) -> list[int]:
    """Return how many messages each split has."""
    counts = []
    for one in found:
        counted = b"select count(*) " + target.rows(one.after, one.until).as_bytes()
        counts += [count for (count,) in connection.execute(counted)]
    return counts


@pytest.mark.parametrize("most", [2, 3, 4])
@pytest.mark.parametrize(
    "target",
    [
        Target(category="common"),
        Target(category="late"),
        Target(category="$all"),
        Target(stream="common-1"),
    ],
    ids=lambda one: one.label,
)
def test_splits_are_even_though_nothing_is_counted(
    connection: psycopg.Connection[Any], target: Target, most: int
) -> None:
    found = find_splits(connection, target, target.before_first, LENGTH, most)
    [(fetched,)] = connection.execute(READ, ("messages_category",)).fetchall()

    counts = sizes(connection, target, found)
    assert len(found) == min(most, sum(counts) // SMALLEST_SPLIT)
    assert max(counts) < 1.2 * min(counts)
    assert fetched < 5  # the index was not scanned


def test_what_is_rare_is_counted(connection: psycopg.Connection[Any]) -> None:
    rare = Target(category="rare")

    [whole] = find_splits(connection, rare, 0, LENGTH, 4)
    [(fetched,)] = connection.execute(READ, ("messages_category",)).fetchall()

    assert whole == Split(0, LENGTH)
    assert fetched > 10  # blocks of the index, where its entries are adjacent


def test_splits_are_even_after_the_older_half_was_removed(
    connection: psycopg.Connection[Any],
) -> None:
    connection.execute("set session_replication_role = replica")
    connection.execute(
        "delete from message_store.messages where global_position <= %s", (LENGTH // 2,)
    )
    common = Target(category="common")

    found = find_splits(connection, common, 0, LENGTH, 3)

    counts = sizes(connection, common, found)
    assert max(counts) < 1.2 * min(counts)


@pytest.mark.parametrize(("after", "until"), [(0, LENGTH), (70_000, 140_000), (10, 20_000)])
def test_splits_cover_the_range_whatever_they_hold(
    connection: psycopg.Connection[Any], after: int, until: int
) -> None:
    for category in ("common", "late", "rare", "$all"):
        found = find_splits(connection, Target(category=category), after, until, 8)

        if found:
            assert (found[0].after, found[-1].until) == (after, until)
        assert all(one.until == next_one.after for one, next_one in pairwise(found))


def test_more_splits_than_make_sense_are_not_made(connection: psycopg.Connection[Any]) -> None:
    found = find_splits(connection, Target(category="$all"), 0, LENGTH, 10_000)

    assert len(found) == LENGTH // SMALLEST_SPLIT


def test_a_million_splits_cost_no_more(connection: psycopg.Connection[Any]) -> None:
    connection.execute("set statement_timeout = '2s'")

    found = find_splits(connection, Target(category="$all"), 0, 20_000, 1_000_000)

    assert len(found) == 2


def test_a_range_is_split_without_statistics_too(
    connection: psycopg.Connection[Any],
) -> None:
    connection.execute(
        "update pg_class set reltuples = -1, relpages = 0"
        " where oid = 'message_store.messages'::regclass"
    )

    found = find_splits(connection, Target(category="common"), 0, LENGTH, 2)

    counts = sizes(connection, Target(category="common"), found)
    assert len(found) == 2
    assert max(counts) < 1.2 * min(counts)
