"""Promise 6, Flat: a call costs the same however often its session has called before.

PostgreSQL plans the statements of a function anew for the first five calls of a session, and may
keep one plan for all later ones. And an old snapshot of somebody else keeps every old version of a
row: a look-up by key would read all of those. So each function is called twenty times in a session,
in a store that has seen much, with fresh statistics and such a snapshot; and each of these calls
reads no more pages than the same call in a store that is almost new.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from tests.conftest import Server
from tests.log.client import Client

CALLS = 20
BUSY = 3_000  # how often a session commits, a consumer saves, a processor takes a step, and so on
SLACK = 30  # pages: deeper indexes, and what the planner reads

# A step of a processor: its Snapshot, and its commit.
BEGIN_STEP = """message_store.write_message(
  gen_random_uuid()::varchar, 'shop:try-bill', 'Snapshot', jsonb_build_object('hash', n::text,
    'generation', 0, 'ranges', jsonb_build_object('common', jsonb_build_array(n, n + 1))))"""
COMMIT_STEP = """penstock.commit_step('shop', 'bill',
  (select m.data::jsonb from message_store.get_last_stream_message('shop:try-bill') m), '{}', '{}',
  '{"messages_in": 1, "cursor": 7, "tables": ["bills"]}')"""
# A delivery that is published in slices of one message.
SLICES = 300
DELIVER = f"""insert into penstock.staged (token, ordinal, category, type)
select '00000000-0000-0000-0000-000000000001', n, 'delivered', 'Sent'
from generate_series(0, {SLICES}) n;
select penstock.publish_delivery('sliced', 1, '{{00000000-0000-0000-0000-000000000001}}',
  '{{{SLICES + 1}}}', false, 1, false)"""

PREPARE = f"""
select penstock.declare_type('Taken', '{{device}}');
select penstock.fill_attributes('Taken');
select message_store.write_message(
  gen_random_uuid()::varchar, 'common-' || n % 7, 'Written', '{{}}')
from generate_series(1, 70) n;
select message_store.write_message(gen_random_uuid()::varchar, 'queue-1', 'Sent', '{{}}')
from generate_series(1, 5) n;
select penstock.append_one(null, gen_random_uuid(), 'Taken', '{{"device": "a"}}');
select penstock.open_session('queue-1', 'me');
update penstock.sessions set epoch = 1;
select penstock.commit_session('queue-1', 'me', 1, 4);
select penstock.save_position('common-me', 1, null, gen_random_uuid());
select penstock.open_processor('shop', 'bill', 'stream');
select {BEGIN_STEP} from (values (0)) as step(n);
select {COMMIT_STEP};
select penstock.publish('nightly', 0, '{{}}', '{{}}');
{DELIVER};
"""

# What a busy day leaves behind; each in a transaction of its own.
CHURN = f"""
do $$
begin
  for n in 1 .. {BUSY} loop
    perform message_store.write_message(
      gen_random_uuid()::varchar, 'queue-1', 'Sent', '{{}}', '{{"correlation_id": "c"}}');
    perform penstock.commit_session('queue-1', 'me', 1, n);
    perform penstock.save_position('common-me', n + 1, n, gen_random_uuid());
    perform penstock.append_one(null, gen_random_uuid(), 'Taken', '{{"device": "a"}}');
    perform {BEGIN_STEP};
    perform {COMMIT_STEP};
    perform penstock.publish('nightly', n, '{{}}', '{{}}');
    if n <= {SLICES} then
      perform penstock.publish_slice('sliced');
    end if;
    commit;
  end loop;
end
$$
"""

EXPLAIN = "explain (analyze, buffers, timing off, format json)"
GUARD = """'{"conditions": [{"type": "Taken", "attributes": {"device": ["b"]}}],
  "low": 0, "seen": "{[3,4]}"}'"""
CONDITIONS = """'[{"type": "Taken", "attributes": {"device": ["b"]}}]'"""
LAST = "(select last_value from message_store.messages_global_position_seq)"

FUNCTIONS = {
    "write_message": "message_store.write_message("
    "gen_random_uuid()::varchar, 'queue-1', 'Sent', '{}')",
    "write_message, repeated": "message_store.write_message("
    "(select id::varchar from message_store.messages where global_position = 1), 'common-1', 'W',"
    " '{}')",
    "write_messages": "penstock.write_messages('queue-1', array[gen_random_uuid()], '{T}', '{{}}',"
    " array[null::text])",
    "stream_version": "message_store.stream_version('queue-1')",
    "get_stream_messages": "message_store.get_stream_messages('queue-1', 3, 2)",
    "get_last_stream_message": "message_store.get_last_stream_message('queue-1')",
    "get_last_stream_message, of a type": "message_store.get_last_stream_message("
    "'queue-1', 'Sent')",
    "get_category_messages": "penstock.get_category_messages('common', 3, 2)",
    "get_category_messages, of the whole log": "penstock.get_category_messages('$all', 3, 2)",
    "get_category_messages, of a member": "penstock.get_category_messages("
    "'common', 3, 2, consumer_group_member => 0, consumer_group_size => 2)",
    "get_category_messages, correlated": "penstock.get_category_messages("
    "'common', 3, 2, correlation => 'queue')",
    "get_category_messages, at the end": f"penstock.get_category_messages('common', {LAST})",
    "message_store.get_category_messages": "message_store.get_category_messages('common', 3, 2)",
    "next_position": "penstock.next_position(3)",
    "category_head": "penstock.category_head('common')",
    "category_head, of the whole log": "penstock.category_head('$all')",
    "head_without_bookkeeping": "penstock.head_without_bookkeeping()",
    "watermark": "penstock.watermark()",
    "open_writers": "penstock.open_writers()",
    "categories": "penstock.categories()",
    "open_session": "penstock.open_session('queue-1', 'other')",
    "poll_session": "penstock.poll_session('queue-1', 'me', 1, 3, false)",
    "poll_session, with auto commit": "penstock.poll_session('queue-1', 'me', 1, 3, true)",
    "commit_session": "penstock.commit_session('queue-1', 'me', 1, 3)",
    "seek_session": "penstock.seek_session('queue-1', 'me', 1, 2, true)",
    "seek_session, to the end": "penstock.seek_session('queue-1', 'me', 1, null, false)",
    "committed_offset": "penstock.committed_offset('queue-1', 'me', 1)",
    "commit_offset": "penstock.commit_offset('queue-1', 'me', 3)",
    "set_position": "penstock.set_position('common-me', 7)",
    "save_position": "penstock.save_position('common-me', 7, "
    "(penstock.latest_position('common-me')).position, gen_random_uuid())",
    "latest_position": "penstock.latest_position('common-me')",
    "remove_messages": f"penstock.remove_messages('queue-1', 5, {LAST}, null, '{{}}')",
    "remove_session": "penstock.remove_session('queue-1', 'me')",
    "remove_consumer": "penstock.remove_consumer('common', 'me')",
    "missed": "penstock.missed('common', 10, 15)",
    "missed, of the whole log": "penstock.missed('$all', 10, 15)",
    "declare_type": "penstock.declare_type('Taken', '{device}')",
    "fill_attributes": "penstock.fill_attributes('Taken')",
    "read_boundary": f"penstock.read_boundary({CONDITIONS}, 0, 2)",
    "lock_guard": f"penstock.lock_guard({CONDITIONS})",
    "advanced_low": f"penstock.advanced_low({GUARD}, array[5])",
    "append_one": "penstock.append_one(null, gen_random_uuid(), 'Taken', '{\"device\": \"b\"}')",
    "append_one, guarded": "penstock.append_one(null, gen_random_uuid(), 'Taken',"
    " '{\"device\": \"c\"}', null, null, null, '{device}', '{b}', 0, '{[3,4]}')",
    "append_one, to a stream": "penstock.append_one('queue-1', gen_random_uuid(), 'Sent', '{}')",
    "append": "penstock.append(null, array[gen_random_uuid(), gen_random_uuid()], '{Taken,Taken}',"
    f" '{{{{}},{{}}}}', '{{null,null}}', null, {GUARD})",
    "open_processor": "penstock.open_processor('shop', 'bill', 'stream')",
    "commit_step": COMMIT_STEP,
    "restart_processor": "penstock.restart_processor('shop', 'bill', '{\"common\": 3}', false)",
    "retire_processor": "penstock.retire_processor('shop', 'bill')",
    "active_tailers": "penstock.active_tailers",
    "slowest_consumer": "penstock.slowest_consumer('common', '{}')",
    "fail_step": "penstock.fail_step('shop', 'bill', 'x', 'why')",
    "publish": "penstock.publish('nightly', 1000000, '{}', '{}')",
    "publish, repeated": "penstock.publish('nightly', 0, '{}', '{}')",
    "publish_slice": "penstock.publish_slice('sliced')",
    "unstage": "penstock.unstage(array[gen_random_uuid()])",
    "sweep_staging": "penstock.sweep_staging()",
    "health": "penstock.health()",
    "safety_look": f"penstock.safety_look({LAST}, '{{queue-1}}', '{{mail}}', '{{group}}')",
}


@contextmanager
def a_store(server: Server, busy: bool) -> Iterator[Client]:
    """A store that is almost new, or had a busy day under a snapshot that is still open."""
    name = server.create_database(server.template("penstock"))
    with (
        psycopg.connect(server.url(name), autocommit=True) as connection,
        psycopg.connect(server.url(name)) as holder,
    ):
        connection.execute(PREPARE)
        holder.execute("set transaction isolation level repeatable read")
        holder.execute("select 1")
        if busy:
            connection.execute(CHURN.encode())
        step = BUSY + 1 if busy else 1
        connection.execute(f"select {BEGIN_STEP} from (values ({step})) as step(n)".encode())
        connection.execute("analyze")
        yield Client(connection)
    server.drop_database(name)


@pytest.fixture(scope="module")
def new(server: Server) -> Iterator[Client]:
    with a_store(server, busy=False) as client:
        yield client


@pytest.fixture(scope="module")
def busy(server: Server) -> Iterator[Client]:
    with a_store(server, busy=True) as client:
        yield client


def pages_read(client: Client, function: str) -> list[int]:
    """How many pages each of so many calls of a function reads, in a session of its own."""
    read = []
    with psycopg.connect(client.connection.info.dsn) as connection:
        for _ in range(CALLS):
            ((plan,),) = connection.execute(f"{EXPLAIN} select * from {function}".encode())
            connection.rollback()
            top = plan[0]["Plan"]
            read.append(top["Shared Hit Blocks"] + top["Shared Read Blocks"])
    return read[1:]  # the first call reads the catalogs


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_call_reads_as_much_in_a_busy_store_as_in_a_new_one(
    new: Client, busy: Client, function: str
) -> None:
    call = FUNCTIONS[function]
    few = pages_read(new, call)

    many = pages_read(busy, call)

    assert max(many) <= max(few) + SLACK, json.dumps([few, many])


def test_a_cost_that_grows_is_noticed(new: Client, busy: Client) -> None:
    call = "message_store.stream_summary"

    assert max(pages_read(busy, call)) > max(pages_read(new, call)) + SLACK


def test_all_rows_are_found_by_their_newest_version(busy: Client) -> None:
    busy.execute("begin")
    for name in ("another", "me", "yet another"):
        busy.execute("select penstock.open_session('mail-1', %s)", name)
        busy.execute("select penstock.set_position('mail-' || %s, 7)", name)

    sessions = busy.values("select stream_name || consumer_id from penstock.all_sessions()")
    positions = busy.values("select consumer_id from penstock.all_positions()")
    busy.execute("rollback")

    assert sorted(sessions) == ["mail-1another", "mail-1me", "mail-1yet another", "queue-1me"]
    assert sorted(positions) == ["common-me", "mail-another", "mail-me", "mail-yet another"]
