"""Promise 6, Flat: each operation finds its rows through its index, whatever the log is full of.

The functions are called as clients call them, and PostgreSQL's own counters say which indexes were
scanned and how many of their entries were read: so the plans are the real ones, of the statements
inside. The log is of the worst kind: nearly all of it is one category; and the statistics know it,
or are older than the rare category, or were never gathered.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
import pytest

from tests.conftest import Server
from tests.log.client import Client

MESSAGES = 20_000
EVERY = 1_000  # one message in so many is rare
ENDS = 8  # entries that the planner may look up itself, to learn where an index ends

FILL = """
insert into message_store.messages (stream_name, type, position, data, metadata)
select category || '-' || n % 100, 'Written', n / 100, '{}',
  jsonb_build_object('correlation_id', n / 10, 'correlationStreamName', 'cause-' || n % 7)
from generate_series(%(first)s::int, %(last)s) n,
  lateral (select case when n %% %(every)s = 0 then 'rare' else 'common' end as category)
""".replace(" % ", " %% ")


@dataclass(frozen=True)
class Work:
    """What a statement did to the table of messages."""

    #: the indexes it scanned
    indexes: frozenset[str]
    #: how many index entries it read
    entries: int
    #: how often it read the whole table
    whole_table: int


def work(client: Client, query: str, plan_cache_mode: str = "auto") -> Work:
    """Run a query and return what it did."""
    client.execute(f"set plan_cache_mode = {plan_cache_mode}")
    client.execute("begin")
    before = counters(client)
    client.execute(query)
    after = counters(client)
    client.execute("rollback")
    scans = {name: after[name][0] - before[name][0] for name in after}
    entries = sum(after[name][1] - before[name][1] for name in after if name != "messages")
    return Work(
        frozenset(name for name, count in scans.items() if count and name != "messages"),
        entries,
        scans["messages"],
    )


def counters(client: Client) -> dict[str, tuple[int, int]]:
    """Return scans, and entries read, of the table and of each of its indexes."""
    rows = client.execute(
        """
        select relname, pg_stat_get_xact_numscans(oid), pg_stat_get_xact_tuples_returned(oid)
        from pg_class
        where oid = 'message_store.messages'::regclass
          or oid in (select indexrelid from pg_index
            where indrelid = 'message_store.messages'::regclass)
        """
    )
    return {name: (scans, entries) for name, scans, entries in rows}


@pytest.fixture(scope="module", params=["fresh", "older than the rare", "never gathered"])
def log(request: pytest.FixtureRequest, server: Server) -> Iterator[Client]:
    """A log full of one category, with statistics of that age."""
    with full(server, "penstock", request.param) as client:
        yield client


@pytest.fixture(scope="module")
def log_beside(server: Server) -> Iterator[Client]:
    """The same on a genuine Message DB, with its own functions and indexes."""
    with full(server, "beside", "fresh") as client:
        yield client


@contextmanager
def full(server: Server, edition: str, statistics: str) -> Iterator[Client]:
    name = server.create_database(server.template(edition))
    with psycopg.connect(server.url(name), autocommit=True) as connection:
        client = Client(connection)
        client.execute("set search_path = message_store, public")
        client.execute("set message_store.sql_condition = on")
        client.execute("alter table message_store.messages set (autovacuum_enabled = off)")
        fill(client, 1, EVERY - 1)
        if statistics == "older than the rare":
            client.execute("analyze message_store.messages")
        fill(client, EVERY, MESSAGES)
        if statistics == "fresh":
            client.execute("analyze message_store.messages")
        yield client
    server.drop_database(name)


def fill(client: Client, first: int, last: int) -> None:
    client.connection.execute(FILL.encode(), {"first": first, "last": last, "every": EVERY})


STREAM = frozenset({"messages_stream"})
CATEGORY = frozenset({"messages_category"})
CORRELATION = frozenset({"messages_category", "messages_correlation"})
PRIMARY_KEY = frozenset({"messages_pkey"})
WRITE = frozenset({"messages_stream", "messages_id"})

# Each call, the only indexes it may scan, and the most entries it may read there.
CALLS = {
    "a stream from its start": (
        "select * from message_store.get_stream_messages('common-5')",
        STREAM,
        200,
    ),
    "a page of a stream": (
        "select * from message_store.get_stream_messages('common-5', 100, 10)",
        STREAM,
        11,
    ),
    "a stream's last message": (
        "select * from message_store.get_last_stream_message('common-5')",
        STREAM,
        1,
    ),
    "a stream's last message of a type": (
        "select * from message_store.get_last_stream_message('common-5', 'Written')",
        STREAM,
        1,
    ),
    "a stream's version": ("select message_store.stream_version('common-5')", STREAM, 1),
    "the version of no stream": ("select message_store.stream_version('none-5')", STREAM, 0),
    "a rare category": (
        "select * from penstock.get_category_messages('rare')",
        CATEGORY,
        20,
    ),
    "a rare category, as Message DB's clients call it": (
        "select * from message_store.get_category_messages('rare')",
        CATEGORY,
        20,
    ),
    "a page of a rare category": (
        "select * from penstock.get_category_messages('rare', 5000, 5)",
        CATEGORY,
        6,
    ),
    "all of a rare category": (
        "select * from penstock.get_category_messages('rare', 1, -1)",
        CATEGORY,
        20,
    ),
    "the end of a rare category": (
        "select * from penstock.get_category_messages('rare', 20001)",
        CATEGORY,
        0,
    ),
    "a category that is not there": (
        "select * from penstock.get_category_messages('none')",
        CATEGORY,
        0,
    ),
    "a page of the common category": (
        "select * from penstock.get_category_messages('common', 10000, 10)",
        CATEGORY,
        11,
    ),
    "the common category from its start": (
        "select * from penstock.get_category_messages('common')",
        CATEGORY,
        1001,
    ),
    "a member of a group in a rare category": (
        "select * from penstock.get_category_messages("
        "'rare', consumer_group_member => 0, consumer_group_size => 2)",
        CATEGORY,
        20,
    ),
    "a member of a group in the common category": (
        "select * from penstock.get_category_messages("
        "'common', 10000, 10, consumer_group_member => 0, consumer_group_size => 2)",
        CATEGORY,
        100,
    ),
    "a rare category with a condition": (
        "select * from penstock.get_category_messages('rare', condition => 'position > 100')",
        CATEGORY,
        20,
    ),
    "a rare category, correlated": (
        "select * from penstock.get_category_messages('rare', correlation => 'cause')",
        CORRELATION,
        20,
    ),
    "a rare category, correlated by id with the common one": (
        "select * from penstock.get_category_messages('rare', correlation => 'common')",
        CORRELATION,
        20 + 20 * 10,
    ),
    "the head of a rare category": ("select penstock.category_head('rare')", CATEGORY, 1),
    "the head of the common category": ("select penstock.category_head('common')", CATEGORY, 1),
    "the head of a category that is not there": (
        "select penstock.category_head('none')",
        CATEGORY,
        0,
    ),
    "the head of the log": ("select penstock.category_head('$all')", PRIMARY_KEY, 1),
    "a page of the log": (
        "select * from penstock.get_category_messages('$all', 10000, 10)",
        PRIMARY_KEY,
        11,
    ),
    "a write": (
        "select message_store.write_message("
        "gen_random_uuid()::varchar, 'common-5', 'Written', '{}', null, 199)",
        WRITE,
        1,
    ),
    "a write of several": (
        "select penstock.write_messages('common-5', array[gen_random_uuid(), gen_random_uuid()],"
        " array['T', 'T'], array['{}', '{}'], array[null, null])",
        WRITE,
        1,
    ),
}


def is_ours(query: str) -> bool:
    """Whether the call is one that Penstock makes on a genuine Message DB too."""
    return "penstock.category_head" in query or "penstock.get_category_messages" in query


@pytest.mark.parametrize("plan_cache_mode", ["force_generic_plan", "force_custom_plan"])
class TestItReadsNoMoreThanItNeeds:
    @pytest.mark.parametrize("call", CALLS)
    def test_in_a_log_of_ours(self, log: Client, call: str, plan_cache_mode: str) -> None:
        check(work(log, CALLS[call][0], plan_cache_mode), call)

    @pytest.mark.parametrize(
        "call", [name for name, (query, *_) in CALLS.items() if is_ours(query)]
    )
    def test_beside_message_db(self, log_beside: Client, call: str, plan_cache_mode: str) -> None:
        check(work(log_beside, CALLS[call][0], plan_cache_mode), call)


def check(done: Work, call: str) -> None:
    _, indexes, entries = CALLS[call]
    assert done.whole_table == 0
    assert done.indexes <= indexes
    assert done.entries <= entries + ENDS


def test_reading_past_the_index_is_noticed(log: Client) -> None:
    walks = "select from message_store.messages where type = 'Written' order by global_position"
    scans = "select count(*) from message_store.messages where type = 'Other'"
    log.execute("set enable_seqscan = off")
    walked = work(log, walks)
    log.execute("reset enable_seqscan")

    scanned = work(log, scans)

    assert walked.indexes == PRIMARY_KEY
    assert walked.entries >= MESSAGES
    assert scanned.whole_table == 1
