"""How a read is divided into partitions, and what a partition costs."""

from __future__ import annotations

from itertools import chain
from typing import Any

import psycopg
import pytest

from penstock import Store
from penstock.spark.read.readers import BatchReader
from tests.groups.school import CourseCreated
from tests.spark.reading import partitions, reader_of

MANY = """
insert into message_store.messages (stream_name, type, position, data)
select 'many-' || n % 10, 'Counted', n / 10, jsonb_build_object('n', n)
from generate_series(0, 44999) n
"""
COUNTERS = """
select relname, pg_stat_get_xact_numscans(oid), pg_stat_get_xact_tuples_returned(oid)
from pg_class
where relnamespace in ('penstock'::regnamespace, 'message_store'::regnamespace)
  and relkind in ('r', 'i') and pg_stat_get_xact_numscans(oid) > 0
"""


@pytest.fixture(scope="module")
def many(shared_store: Store, shared_url: str) -> str:
    """A database with 45,000 messages in ten streams of one category, and a course."""
    with psycopg.connect(shared_url, autocommit=True) as connection:
        connection.execute(MANY.encode())
        connection.execute("analyze message_store.messages")
    shared_store.append([CourseCreated(course_name="Algebra")])
    return shared_url


def work(url: str, one: Any) -> dict[str, tuple[int, int]]:
    """Read a partition; return how often each table and index was scanned, and the entries read."""
    query = "select m.* " + one.target.rows(one.split.after, one.split.until).as_string()
    with psycopg.connect(url) as connection:
        connection.execute(query.encode())
        found = connection.execute(COUNTERS.encode()).fetchall()
    return {name: (scans, entries) for name, scans, entries in found}


@pytest.mark.parametrize(("partitions", "expected"), [("1", 1), ("2", 2), ("3", 3), ("8", 4)])
def test_partitions_have_about_as_many_messages_each(
    many: str, partitions: str, expected: int
) -> None:
    reader = reader_of(many, category="many", columns="global_position", partitions=partitions)

    found = [
        [position for batch in reader.read(one) for position in batch.column(0).to_pylist()]
        for one in reader.partitions()
    ]

    sizes = [len(one) for one in found]
    assert len(found) == expected
    assert max(sizes) - min(sizes) < 0.2 * max(sizes)
    assert sorted(chain(*found)) == list(range(1, 45_001))


def test_few_messages_are_one_partition(many: str) -> None:
    [stream] = partitions(many, stream="many-3", partitions="8")
    [few] = partitions(many, category="many", after="44000", partitions="8")

    assert (stream.split.after, stream.split.until) == (-1, 4499)
    assert (few.split.after, few.split.until) == (44000, 45000)


def test_a_partition_comes_in_batches_that_do_not_grow_with_it(many: str) -> None:
    reader = reader_of(many, category="many", partitions="1")
    [one] = reader.partitions()

    sizes = [batch.nbytes for batch in reader.read(one)]

    assert len(sizes) > 2
    assert max(sizes) < 4 * 1024 * 1024


def test_a_category_is_read_by_its_index(many: str) -> None:
    [one] = partitions(many, category="many", after="44990")

    used = work(many, one)

    assert "messages" not in used
    assert used["messages_category"][1] <= 10


def test_one_stream_is_read_by_its_index(many: str) -> None:
    [one] = partitions(many, stream="many-3", after="4490")

    used = work(many, one)

    assert used == {"messages_stream": (1, 9)}


def test_attributes_are_read_by_their_index(many: str) -> None:
    [one] = partitions(many, attributes='{"course_name": "Algebra"}')

    used = work(many, one)

    assert "messages" not in used
    assert sum(entries for _, entries in used.values()) < 20


def test_no_text_leaves_its_quotes(many: str) -> None:
    hostile = "x' or true; drop table penstock.staged; ' %s {}"
    reader = reader_of(many, category=hostile, types=hostile)

    found = [batch for one in reader.partitions() for batch in reader.read(one)]

    assert found == []


def test_spark_is_given_a_reader_that_takes_no_filters(many: str) -> None:
    reader = reader_of(many, category="many")

    assert type(reader) is BatchReader
