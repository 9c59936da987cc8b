"""What a batch of retention reads does not grow: with the log, or with what was removed before."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, LiteralString

import psycopg
import pytest

import penstock
from penstock import Store
from penstock.database.operation import Operation
from penstock.log import retention
from penstock.log.retention import Batch, Bounds, Keep
from tests.conftest import Server

MESSAGES, STREAMS = 200_000, 500
BATCH, BETWEEN = 100, 30_000  # removed at a time; and in one go, before the last batches

FILL: LiteralString = """
insert into message_store.messages (stream_name, type, position, data, time)
select 'order-' || n %% %(streams)s, 'Placed', n / %(streams)s, jsonb_build_object('number', n),
  now() at time zone 'utc' - make_interval(days => case when n < %(old)s then 30 else 0 end)
from generate_series(0, %(messages)s - 1) n
"""


@pytest.fixture(scope="module")
def long_log(server: Server) -> Iterator[Store]:
    """A log whose first nine tenths are a month old, with a consumer of each kind at its end."""
    name = server.create_database(server.template("penstock"))
    with penstock.connect(server.url(name)) as store:
        numbers = {"messages": MESSAGES, "streams": STREAMS, "old": MESSAGES * 9 // 10}
        with store.transaction() as transaction:
            transaction.connection.execute(FILL, numbers)
        store.admin.seek("order", "mailer", MESSAGES, "stream")
        store.admin.seek("order", "biller", MESSAGES, "table")
        with psycopg.connect(store.settings.conninfo(), autocommit=True) as connection:
            connection.execute("vacuum analyze message_store.messages")
        yield store
    server.drop_database(name)


def pages(connection: psycopg.Connection[Any], operation: Any) -> int:
    """How many pages the server reads for an operation, in memory or not."""
    ((statement,),) = (operation.statements,)
    row = connection.execute(
        f"explain (analyze, buffers, format json) {statement.sql}".encode(), statement.arguments
    ).fetchone()
    assert row is not None
    plan = row[0][0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def batch_at(bounds: Bounds, place: int | None, batch_size: int = BATCH) -> Operation[Batch]:
    return retention.remove_batch("order", bounds, False, place, batch_size)


def test_a_batch_reads_as_many_pages_at_the_end_of_a_run_as_at_its_beginning(
    long_log: Store,
) -> None:
    keep = Keep(age=timedelta(days=1))
    bounds = long_log.run(retention.find_bounds(long_log.context, "order", keep, False))

    with (
        psycopg.connect(long_log.settings.conninfo()) as snapshot,  # keeps vacuum away
        psycopg.connect(long_log.settings.conninfo(), autocommit=True) as connection,
    ):
        snapshot.execute("set transaction isolation level repeatable read")
        snapshot.execute("select 1")
        connection.execute("set plan_cache_mode = auto")

        def read(place: int | None, batch_size: int = BATCH) -> int:
            return pages(connection, batch_at(bounds, place, batch_size))

        early = [read(place) for place in (None, *range(BATCH, 20 * BATCH, BATCH))]
        read(20 * BATCH, BETWEEN)
        late = [read(150_000 + place) for place in range(0, 20 * BATCH, BATCH)]

    counts = [*early[2:], *late]  # the first calls of a session also read the catalog
    assert long_log.get_stream_messages("order-0", 0, 1)[0].position > BETWEEN // STREAMS
    assert max(late) <= 1.2 * min(early[2:]), counts
    assert max(counts) <= 13 * BATCH, counts


@pytest.mark.parametrize(
    "keep", [Keep(age=timedelta(days=1)), Keep(count=10), Keep(from_position=5)]
)
def test_the_bounds_are_found_without_reading_what_goes(long_log: Store, keep: Keep) -> None:
    operation = retention.find_bounds(long_log.context, "order", keep, False)
    with psycopg.connect(long_log.settings.conninfo(), autocommit=True) as connection:
        pages(connection, operation)

        read = pages(connection, operation)

    assert read < 100


def test_a_batch_of_streams_of_their_own_reads_as_many_pages_in_a_long_log(
    server: Server,
) -> None:
    name = server.create_database(server.template("penstock"))
    with penstock.connect(server.url(name)) as store:
        with store.transaction() as transaction:
            transaction.connection.execute(FILL_OWN, {"messages": 50_000})
        store.admin.seek("order", "mailer", 50_000, "table")
        bounds = store.run(retention.find_bounds(store.context, "order", Keep(count=1), False))
        with psycopg.connect(store.settings.conninfo(), autocommit=True) as connection:
            connection.execute("vacuum analyze message_store.messages")

            places = (None, 100, 200, 300, 40_000, 40_100, 40_200)
            counts = [pages(connection, batch_at(bounds, place)) for place in places][2:]
        left = len(store.get_category_messages("order", batch_size=-1))
    server.drop_database(name)

    assert left == 50_000 - len(places) * BATCH
    assert max(counts) <= 1.2 * min(counts), counts
    assert max(counts) <= 20 * BATCH, counts


FILL_OWN: LiteralString = """
insert into message_store.messages (id, stream_name, type, position, data)
select u.id, 'order-' || u.id, 'Placed', 0, '{}'
from generate_series(1, %(messages)s) n, lateral (select md5(n::text)::uuid as id) u
"""


def test_a_run_ends_at_the_first_message_that_is_too_new(long_log: Store) -> None:
    keep = Keep(age=timedelta(days=1))
    bounds = long_log.run(retention.find_bounds(long_log.context, "order", keep, False))

    batch = long_log.run(batch_at(bounds, MESSAGES * 9 // 10))

    assert (batch.removed, batch.walked_to) == (0, None)
    assert isinstance(bounds, Bounds)
