"""What a screen costs does not grow with what is in the database.

PostgreSQL's own counters say how many rows of tables and entries of indexes a call has read. The
tables are large, and have no statistics: the worst case for the planner.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

import penstock
from penstock import AsyncStore
from penstock.console.data import (
    boundaries,
    categories,
    consumers,
    dead_letters,
    groups,
    joins,
    log,
    message_detail,
    outbox,
    overview,
    partitions,
    topics,
)
from penstock.console.data.search import search
from penstock.console.data.trace import trace
from penstock.message.typed import TypedMessage
from tests.conftest import Server

MESSAGES = 200_000
STREAMS = 10_000
PARTITIONS = 100_000
OUTBOX = 15_000

FILL = f"""
insert into message_store.messages (stream_name, type, position, data, metadata, time)
select 'order-' || mod(n, {STREAMS}), 'Placed', n / {STREAMS}, '{{}}',
  jsonb_build_object('correlation_id', 'c' || n / 10),
  '2026-01-01'::timestamp + make_interval(secs => n)
from generate_series(1, {MESSAGES - 20_000}) n;
insert into message_store.messages (stream_name, type, position, data, metadata, time)
select 'big.seen-' || n, 'big.seen', 0, jsonb_build_object('user', 'u' || mod(n, 2)), null,
  '2026-01-04'::timestamp + make_interval(secs => n)
from generate_series(1, 20000) n;
insert into message_store.messages (stream_name, type, position, data)
select 'order:position-' || c, 'PositionUpdated', n, '{{"position": 5}}'
from generate_series(1, 3000) n, generate_series(1, 3) c;
select penstock.register_consumer_group('g');
update penstock.consumer_groups set partition_by = '{{user}}';
insert into penstock.partitions (group_pk, partition_key, partition_values, feed, feeds)
select g.id, 'user:u' || n, array['u' || n], penstock.feed_key(array['u' || n]),
  array[penstock.feed_key(array['u' || n])]
from penstock.consumer_groups g, generate_series(1, {PARTITIONS}) n;
insert into penstock.partition_states
  (offset_id, group_pk, next_position, queue_position, due, token, claimed_by, claimed_at,
   parked_at, error)
select p.offset_id, p.group_pk, p.offset_id,
  case when mod(p.offset_id, 4) = 0 then p.offset_id end,
  case when mod(p.offset_id, 4) = 1 then now() end,
  case when mod(p.offset_id, 4) = 1 then gen_random_uuid() end, 'w', now(),
  case when mod(p.offset_id, 4) = 2 then now() end, 'no'
from penstock.partitions p;
insert into penstock.outbox (id, topic, payload, encoding, state, due, lease_until, finished_at)
select gen_random_uuid(), 'topic ' || mod(n, 7), '{{}}', 'json', s.state,
  now(), case when s.state = 'in_progress' then now() end,
  case when s.state in ('done', 'failed') then now() - make_interval(secs => n) end
from generate_series(1, {OUTBOX}) n,
  lateral (select (array['ready', 'in_progress', 'done', 'failed'])[1 + mod(n, 4)]) s(state);
insert into penstock.joins (join_id, grouping_key, expected_steps, status, created_at)
select gen_random_uuid(), case mod(n, 1000) when 3 then 'rare' else 'usual' end, 1,
  (array['pending', 'completed'])[1 + mod(n, 2)], now() - make_interval(secs => n)
from generate_series(1, {OUTBOX}) n;
insert into penstock.join_steps (join_id) select join_id from penstock.joins;
"""
READ = """
    select sum(pg_stat_get_xact_tuples_returned(c.oid))::bigint
    from pg_class c
    where c.relnamespace in ('message_store'::regnamespace, 'penstock'::regnamespace)
      and c.relkind in ('i', 'r')
    """


class BigSeen(TypedMessage, type="big.seen"):
    user: str


@pytest.fixture(scope="module")
def big_database(server: Server) -> Iterator[str]:
    """A database with large tables, and without statistics."""
    name = server.create_database(server.template("penstock"))
    with penstock.connect(server.url(name)) as store:
        store.declare(BigSeen)
    with psycopg.connect(server.url(name), autocommit=True) as connection:
        for statement in FILL.split(";\n"):
            if statement.strip():
                connection.execute(statement.encode())
    yield server.url(name)
    server.drop_database(name)


@pytest.fixture
async def counted(big_database: str) -> AsyncIterator[tuple[Any, Any]]:
    """A store on one connection, in one transaction, whose reads are counted."""
    async with await penstock.connect_async(big_database) as store:
        connection = await psycopg.AsyncConnection.connect(big_database)
        async with connection:
            yield store.using(connection), connection
            await connection.rollback()


Call = Callable[[AsyncStore], Awaitable[Any]]
MIDDLE = datetime(2026, 1, 2, tzinfo=UTC)
LOOK_AT = 15_000

#: a name, what is called, and how many rows and entries it may read
CALLS: list[tuple[str, Call, int]] = [
    ("overview", overview.overview, 8_000),
    ("categories", categories.categories, 500),
    ("streams", lambda store: categories.streams(store, "order"), 2_500),
    ("streams, for operators", lambda store: store.streams("order"), 2_500),
    ("messages of all", log.messages, 500),
    ("messages of a category", lambda store: log.messages(store, "order"), 500),
    ("messages of a stream", lambda store: log.messages(store, "order-7"), 500),
    ("a type", lambda store: log.messages(store, "order", type="None"), LOOK_AT),
    ("messages from", lambda store: log.messages_from(store, "order", 100_000), 500),
    ("a message", lambda store: message_detail.message(store, 100_000), 50),
    ("a time", lambda store: log.position_at(store, MIDDLE), 200),
    ("a time of a category", lambda store: log.position_at(store, MIDDLE, "order"), 200),
    ("a search by attribute", lambda store: search(store, attributes={"user": "u1"}), 45_000),
    ("a search by type", lambda store: search(store, type="None"), 2 * LOOK_AT),
    ("a search by correlation", lambda store: search(store, correlation="c5"), 45_000),
    ("consumers", consumers.consumers, 10_000),
    ("a consumer", lambda store: consumers.consumer(store, "order", "1"), 4_000),
    ("groups", groups.groups, 10_000),
    ("partitions", lambda store: partitions.partitions(store, "g"), 8_000),
    ("a partition", lambda store: partitions.partition(store, "g", "user:u77777"), 8_000),
    *(
        (
            f"{state} partitions",
            lambda store, state=state: partitions.partitions(store, "g", state),
            2 * LOOK_AT,
        )
        for state in partitions.STATES
    ),
    ("topics", topics.topics, 20_000),
    *(
        (
            f"{state} messages of the outbox",
            lambda store, state=state: outbox.outbox_messages(store, "topic 3", state),
            2 * LOOK_AT,
        )
        for state in (None, *outbox.STATES)
    ),
    ("joins", joins.joins, 2_000),
    *(
        (
            f"joins of a {key} key",
            lambda store, key=key: joins.joins(store, grouping_key=key),
            2_000,
        )
        for key in ("rare", "usual")
    ),
    (
        "a boundary",
        lambda store: boundaries.explore(store, "big.seen user=u1"),
        2 * LOOK_AT,
    ),
    ("dead letters", dead_letters.dead_letters, 8_000),
    ("parked partitions", lambda store: dead_letters.dead_letters(store, "partition"), 20_000),
    ("a trace", lambda store: trace(store, 1_000), 60_000),
]


@pytest.mark.parametrize(("call", "most"), [one[1:] for one in CALLS], ids=[o[0] for o in CALLS])
async def test_a_screen_reads_a_bounded_number_of_rows(
    counted: tuple[Any, Any], call: Call, most: int
) -> None:
    store, connection = counted
    before = (await (await connection.execute(READ)).fetchone())[0]

    await call(store)

    after = (await (await connection.execute(READ)).fetchone())[0]
    assert after - before <= most
