"""The offsets of a stream: how far a micro-batch may read. The reader alone, as Spark has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import psycopg
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from penstock import Store
from penstock.spark.connections import find_database
from penstock.spark.options import read_options
from penstock.spark.read.columns import default_schema
from penstock.spark.read.readers import StreamReader

Reading = Callable[..., StreamReader]


@pytest.fixture
def reading(database_url: str) -> Iterator[Reading]:
    """Make readers, and stop them in the end."""
    with ExitStack() as readers:

        def make(**options: str) -> StreamReader:
            found = read_options({"url": database_url, "category": "order", **options})
            one = StreamReader(find_database(database_url), found, default_schema(None))
            readers.callback(one.stop)
            return one

        yield make


def latest(one: StreamReader) -> int:
    """Return how far a new query reads in its first batch."""
    return int(one.latestOffset(one.initialOffset(), ReadAllAvailable())["position"])


@pytest.mark.parametrize("until", [{}, {"until": "9"}], ids=["the end", "until"])
def test_a_batch_ends_before_a_message_that_is_not_committed(
    store: Store, reading: Reading, until: dict[str, str]
) -> None:
    store.write_message("order-1", "Placed")
    with store.transaction() as late:
        late.write_message("order-2", "Placed")
        store.write_message("order-1", "Placed")

        assert latest(reading(**until)) == 1

    assert latest(reading(**until)) == 3


def test_it_ends_at_a_message_and_not_at_a_position_that_was_rolled_back(
    store: Store, database_url: str, reading: Reading
) -> None:
    store.write_message("order-1", "Placed")
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "select message_store.write_message(gen_random_uuid()::text, 'order-1', 'T', '{}')"
        )
        connection.rollback()
    one = reading()

    offset = one.latestOffset(one.initialOffset(), ReadAllAvailable())

    assert (offset["position"], "id" in offset) == (1, True)


def test_it_never_ends_before_it_begins(store: Store, reading: Reading) -> None:
    for stream in ("order-1", "other-1"):
        store.write_message(stream, "Placed")
    one = reading(after="2")
    start = one.initialOffset()

    again = one.latestOffset(start, ReadAllAvailable())

    assert again == start
    assert start["position"] == 2


def test_all_batches_together_have_every_message_once(store: Store, reading: Reading) -> None:
    for number in range(7):
        store.write_message(f"order-{number % 2}", "Placed")
    one, found = reading(), list[int]()
    start = one.initialOffset()
    while (end := one.latestOffset(start, ReadMaxRows(3))) != start:
        for part in one.partitions(start, end):
            for batch in one.read(part):
                found += batch.column("global_position").to_pylist()
        start = end

    assert found == list(range(1, 8))


@pytest.mark.parametrize("target", [{"category": "50%s off"}, {"stream": "50%s off-1"}])
def test_a_percent_sign_is_a_character_like_any_other(
    store: Store, database_url: str, target: dict[str, str]
) -> None:
    for _ in range(2):
        store.write_message("50%s off-1", "Placed")
    chosen = read_options({"url": database_url, **target})
    one = StreamReader(find_database(database_url), chosen, default_schema(None))

    start = one.initialOffset()
    end = one.latestOffset(start, ReadMaxRows(1))
    [partition] = one.partitions(start, end)

    assert end["position"] == start["position"] + 1
    assert [batch.num_rows for batch in one.read(partition)] == [1]
    one.stop()
